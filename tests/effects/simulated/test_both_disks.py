"""The simulated disk beside the real one: the same operations, the same readable result."""

import errno
import shutil
import tempfile

from disk_files import read
from fencepost.effects.disk import SystemDisk
from fencepost.effects.simulated.disk import SimulatedDisk
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import share_of

NAMES = st.sampled_from(["a", "b", "c", "d/a", "d/b", "d", "e", "e/x/y"])
SIZES = st.sampled_from([0, 1, 2, 511, 512, 4095, 4096, 4097, 9000])
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES),
    st.tuples(st.just("open"), NAMES),
    st.tuples(st.just("write"), NAMES, SIZES, st.lists(st.binary(max_size=3) | st.just(b"\0" * 5000), max_size=3)),
    st.tuples(st.just("truncate"), NAMES, SIZES),
    st.tuples(st.just("read"), NAMES, SIZES, SIZES),
    st.tuples(st.just("read_cached"), NAMES, SIZES, SIZES),
    st.tuples(st.just("sync"), NAMES),
    st.tuples(st.just("make_directory"), NAMES),
    st.tuples(st.just("sync_directory"), NAMES),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("unlink"), NAMES),
    st.tuples(st.just("remove_tree"), NAMES),
    st.tuples(st.just("list"), NAMES),
    st.tuples(st.just("size"), NAMES),
    st.tuples(st.just("is_directory"), NAMES),
)


class Driver:
    """Does steps on a disk under a root; files stay open across steps, by the name they were opened by."""

    def __init__(self, disk, root):
        self.disk = disk
        self.root = root
        self.files = {}

    def do(self, step):
        kind, *arguments = step
        try:
            return getattr(self, kind, self._plain)(*arguments) if hasattr(self, kind) else self._plain(*step)
        except OSError as error:
            return type(error), error.errno

    def create(self, name):
        self._keep(name, create=True)

    def open(self, name):
        self._keep(name)

    def write(self, name, position, buffers):
        self._file(name).write(buffers, position)

    def truncate(self, name, size):
        self._file(name).truncate(size)

    def read(self, name, size, position):
        return self._file(name).read(size, position)

    def read_cached(self, name, size, position):
        return bytes(self._file(name).read_cached(size, position))

    def sync(self, name):
        self._file(name).sync()

    def size(self, name):
        return None if self.disk.is_directory(f"{self.root}/{name}") else self.disk.size(f"{self.root}/{name}")

    def rename(self, old, new):
        if new.startswith(f"{old}/"):
            return  # a directory into itself: nobody does
        self.disk.rename(f"{self.root}/{old}", f"{self.root}/{new}")

    def tree(self, under=""):
        for name in self.disk.list(f"{self.root}{under}"):
            path = f"{under}/{name}"
            if self.disk.is_directory(f"{self.root}{path}"):
                yield path, None
                yield from self.tree(path)
            else:
                yield path, read(self.disk, f"{self.root}{path}")

    def close(self):
        for file in self.files.values():
            file.close()

    def _plain(self, kind, name):
        return getattr(self.disk, kind)(f"{self.root}/{name}")

    def _keep(self, name, create=False):
        file = self.disk.open(f"{self.root}/{name}", create=create)
        if name in self.files:
            self.files[name].close()
        self.files[name] = file

    def _file(self, name):
        if name not in self.files:
            raise OSError(errno.EBADF, "not opened by these steps")
        return self.files[name]


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=share_of(150))
def test_the_same_operations_give_the_same_results_on_a_real_and_a_simulated_disk(steps):
    root = tempfile.mkdtemp()
    real, simulated = Driver(SystemDisk(), root), Driver(SimulatedDisk(), "/root")
    simulated.disk.make_directory("/root")
    try:
        for step in steps:
            assert real.do(step) == simulated.do(step), step
        assert list(real.tree()) == list(simulated.tree())
        assert list(real.tree()) == list(Driver(simulated.disk.after_process_crash(), "/root").tree())
    finally:
        real.close()
        shutil.rmtree(root)
