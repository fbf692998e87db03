"""Admin's calls about the disks of brokers. Sources: KIP-113, KIP-827."""

from collections.abc import Iterable

from ...protocol.messages.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse
from ..errors import KafkaError
from .asking import Answer, refuse
from .configs import ConfigAdmin
from .values import LogDir, LowLogDir

FLOOR = "storage.min.free.bytes"
ELSEWHERE_BYTES, ELSEWHERE_SHARE = 1 << 30, 50  # Kafka refuses nothing and stops at the end: below both of these


class LogDirAdmin(ConfigAdmin):
    """Directories of brokers, and the room on their disks. Needs Describe on the cluster."""

    async def describe_log_dirs(self, brokers: Iterable[int] | None = None) -> dict[int, list[LogDir]]:
        """Return the directories of these brokers, or of all, by node id. Sizes are None before Kafka 3.3."""
        if brokers is None:
            brokers = sorted(each.node_id for each in (await self._metadata([])).brokers)
        found: dict[int, list[LogDir]] = {}
        for node in brokers:
            response: DescribeLogDirsResponse = await self._ask(
                node, DescribeLogDirsRequest(topics=[]), lambda r: [r.error_code]
            )
            refuse([Answer(f"broker {node}", response.error_code)])
            refuse(Answer(f"directory {each.log_dir}", each.error_code) for each in response.results)
            found[node] = [
                LogDir(each.log_dir, _size(each.total_bytes), _size(each.usable_bytes)) for each in response.results
            ]
        return found

    async def find_low_log_dirs(self) -> list[LowLogDir]:
        """Return the directories on nearly full disks.

        A directory of fencepost is returned if its disk has no more free space than storage.min.free.bytes, from where
        on the broker refuses writes; one of another broker if less than 1 GiB and less than 2 % of the disk are free.
        """
        low: list[LowLogDir] = []
        for node, directories in (await self.describe_log_dirs()).items():
            floor = await self._floor_of(node)
            for each in directories:
                usable, total = each.usable_bytes, each.total_bytes or 0
                limit = floor if floor is not None else min(ELSEWHERE_BYTES, total // ELSEWHERE_SHARE)
                if usable is not None and usable <= limit:
                    low.append(LowLogDir(node, each.path, usable, floor))
        return low

    async def _floor_of(self, node: int) -> int | None:
        """Return storage.min.free.bytes of the broker, which refuses writes with less free space. Returns None if it
        has no such setting or we may not see it.
        """
        try:
            configs = (await self.describe_configs(brokers=[node])).get(str(node), [])
        except KafkaError:
            return None
        value = next((each.value for each in configs if each.name == FLOOR), None)
        return int(value) if value is not None else None


def _size(size_bytes: int) -> int | None:
    return size_bytes if size_bytes >= 0 else None
