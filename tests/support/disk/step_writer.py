"""An async writer whose writes go on when a test says so: in any order, each written, then synced, then told."""

from fencepost.effects.disk.async_writer import AsyncWriter


class Step:
    """One write that was begun."""

    def __init__(self, file, position, data, done):
        self._file, self._position, self._data, self._done = file, position, data, done
        self._sync = None

    def write(self):
        self._sync = self._file.write_alone(self._data, self._position)

    def sync(self):
        """Make the write durable on the device, without reporting it yet."""
        self._sync()

    def tell(self, error=None):
        self._done(error, 1)

    def end(self):
        self.write()
        self.sync()
        self.tell()


class StepWriter(AsyncWriter):
    from_bytes = 1
    largest_bytes = 1 << 20
    at_once = 4

    def __init__(self):
        self.steps = []

    def begin(self, file, position, buffers, size_bytes, done):
        data = b"".join(buffers)
        assert len(data) == size_bytes
        self.steps.append(Step(file, position, data, done))
        return True

    def close(self):
        pass
