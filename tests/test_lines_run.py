"""The measure of work counts what is called, and nothing that the collector does meanwhile."""

import gc

from lines_run import lines_run


class Talkative:
    """Its end takes many lines."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(1_000):
            pass


def allocate() -> None:
    kept: list[list[int]] = []
    for _ in range(1_000):
        kept.append([])


def test_lines_run_does_not_count_lines_that_the_garbage_collector_runs() -> None:
    alone = lines_run(allocate)
    before = gc.get_threshold()
    gc.set_threshold(100)
    try:
        for _ in range(10):
            Talkative()
        assert lines_run(allocate) == alone
    finally:
        gc.set_threshold(*before)
    assert gc.isenabled()
