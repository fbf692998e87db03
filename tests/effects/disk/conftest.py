"""A loop with a writer of native asynchronous I/O, and a file for it, on the real disk."""

import pytest
from fencepost.effects.disk import SystemDisk
from fencepost.effects.disk.aio import open_writer
from loops import LOOPS
from native_aio import BEFORE, has_native_aio
from this_machine import goes_past_cache


@pytest.fixture(params=LOOPS.values(), ids=LOOPS)
def loop(request):
    if not has_native_aio():
        pytest.skip("NO NATIVE AIO HERE: SYNCED WRITES OF A LOOP ARE NOT TESTED")
    loop, complaints = request.param(), []
    loop.set_exception_handler(lambda loop, context: complaints.append(context))
    yield loop
    loop.close()
    assert complaints == []


@pytest.fixture
def writer(loop):
    writer = open_writer(loop)
    yield writer
    writer.close()


@pytest.fixture(scope="module")
def has_o_direct(tmp_path_factory):
    return goes_past_cache(tmp_path_factory.getbasetemp())


@pytest.fixture
def file(tmp_path, has_o_direct):
    if not has_o_direct:
        pytest.skip("NO O_DIRECT HERE (tmpfs): SYNCED WRITES OF A LOOP ARE NOT TESTED")
    file = SystemDisk().open(str(tmp_path / "file"), create=True)
    file.write([BEFORE], 0)
    file.sync()
    yield file
    file.close()
