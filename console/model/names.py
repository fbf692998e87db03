"""Transactional ids by producer id, as far as the console has seen them. Pure.

A coordinator gives a producer id to one transactional id only, so a pair that was seen once stays true, even after the
id has expired. For a pair that was not seen, producer id and epoch are shown.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping

KEPT = 50_000


class ProducerNames(Mapping[tuple[int, int], str]):
    """A mapping of (producer id, epoch) to the transactional id. The epoch is ignored."""

    def __init__(self, most: int = KEPT) -> None:
        self._names: OrderedDict[int, str] = OrderedDict()
        self._most = most

    def add(self, producer_id: int, transactional_id: str) -> None:
        """Remember the transactional id of a producer id; -1 is ignored. The one added longest ago is forgotten beyond
        the limit.
        """
        if producer_id >= 0:
            self._names[producer_id] = transactional_id
            self._names.move_to_end(producer_id)
            if len(self._names) > self._most:
                self._names.popitem(last=False)

    def __getitem__(self, producer: tuple[int, int]) -> str:
        return self._names[producer[0]]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter((each, -1) for each in self._names)

    def __len__(self) -> int:
        return len(self._names)
