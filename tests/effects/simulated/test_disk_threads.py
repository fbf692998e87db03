"""The simulated disk under several threads, as a restore from a store of objects uses it."""

import contextlib
import sys
from functools import partial

from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.threads import call_all


def test_files_that_several_threads_create_and_write_at_once_do_not_share_bytes():
    disk, names = SimulatedDisk(), [f"/{thread}-{number}" for thread in range(8) for number in range(50)]

    def fill(name):
        with contextlib.closing(disk.open(name, create=True)) as file:
            file.write([name.encode()], 0)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        call_all([partial(fill, name) for name in names], "filling", 8)
    finally:
        sys.setswitchinterval(usual)
    assert {name: disk.open(name).read(20, 0) for name in names} == {name: name.encode() for name in names}
    assert [operation.index for operation in disk.operations] == list(range(len(disk.operations)))
