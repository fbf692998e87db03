"""One transactional id as its clients may see it: a small model that knows no states.

It knows which pair (producer id, epoch) is the living one, which pair the last bump replaced and why, what is open, and
what was decided. An answer is "ok", "refused" (a zombie or a stranger: 49, 90), "state" (48), and the pair that holds.
"""

from dataclasses import dataclass, field

Pair = tuple[int, int]
LAST = 32766


@dataclass
class Model:
    """`issued` are all pairs in order, the last one alive. `before` may come again with what replaced it."""

    issued: list[Pair] = field(default_factory=list)
    before: Pair | None = None
    ended: tuple[bool, bool] | None = None  # the last transaction: committed?, and did its end move the epoch?
    open: dict | None = None
    prepared: tuple | None = None  # key, number, and whether it is held
    fresh: int = 1000  # the next producer id nobody had
    decided: list[tuple[bool, dict]] = field(default_factory=list)  # every transaction, in order: outcome, partitions

    @property
    def alive(self) -> Pair | None:
        return self.issued[-1] if self.issued else None

    @property
    def held(self) -> bool:
        return self.prepared is not None and self.prepared[-1]

    def _bump(self, before: Pair | None) -> None:
        producer, epoch = self.alive
        self.issued.append((producer, epoch + 1) if epoch < LAST else self._fresh())
        self.before = before

    def _fresh(self) -> Pair:
        self.fresh += 1
        return self.fresh - 1, 0

    def _decide(self, commit: bool, bumps: bool) -> None:
        self.decided.append((commit, self.open or {}))
        self.ended = commit, bumps
        self.open = self.prepared = None
        if bumps:
            self._bump(self.alive)

    # What clients ask

    def init(self, given: Pair | None) -> str:
        if self.alive is None:
            self.issued.append(self._fresh())
            return "ok"
        if self.held:
            return "wait"
        if given is not None and given != self.alive:
            if given != self.before or self.open is not None:
                return "refused"
            self.ended = None
            return "ok"
        if self.open is not None:
            self._decide(False, True)
            self.before = given
        else:
            self._bump(given)
        self.ended = None
        return "ok"

    def add(self, pair: Pair, partitions: dict) -> str:
        if pair != self.alive:
            return "refused"
        if self.prepared:
            return "state"
        self.open = {**(self.open or {}), **partitions}
        self.ended = None
        return "ok"

    def end_v1(self, pair: Pair, commit: bool) -> str:
        if pair != self.alive:
            return "refused"
        if self.open is None:
            return "ok" if self.ended is not None and self.ended[0] is commit else "state"
        self._decide(commit, bool(self.prepared))
        return "ok"

    def end_v2(self, pair: Pair, commit: bool) -> str:
        if pair == self.before and self.ended is not None and self.ended[1]:
            return "ok" if self.ended[0] is commit else "state"
        if pair != self.alive:
            return "refused"
        if self.open is None and commit:
            return "state"
        self._decide(commit, True)
        return "ok"

    def prepare(self, pair: Pair, key: tuple) -> str:
        if pair != self.alive:
            return "refused"
        if self.open is None or self.prepared not in (None, key):
            return "state"
        self.prepared = key
        return "ok"

    # What happens to them

    def time_out(self) -> None:
        """Let the transaction time out, or the wait for its decision."""
        if self.open is not None:
            self._decide(False, True)

    def abort(self) -> str:
        """Abort the transaction as an admin does. Returns "ok", or "state" if only its decision can end it."""
        if self.held:
            return "state"
        self.time_out()
        return "ok"

    def settle(self, commit: bool) -> str:
        if not self.prepared:
            return "state"
        self._decide(commit, True)
        return "ok"
