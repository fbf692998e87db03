"""The release of fencepost that a broker runs, read from its metrics."""

from ...client.admin.admin import Admin
from ...client.errors import KafkaError

BUILD = "fencepost_build_info"


async def release_of(admin: Admin) -> str | None:
    """Return the release of fencepost that the broker runs. None if it is another broker, or this login may not see
    metrics.
    """
    try:
        found = await admin.describe_metrics()
    except KafkaError:  # another broker, or no right to see them
        return None
    return next((each.samples[0].labels[0] for each in found if each.name == BUILD and each.samples), None)
