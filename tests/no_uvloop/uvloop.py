"""Put before the real one on PYTHONPATH: fencepost and its tests run on asyncio's own loop (`make check-asyncio`)."""

raise ImportError("the tests run without uvloop")
