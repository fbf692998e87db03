"""How long clients wait is what Kafka's own Rate and TokenBucket say: answers recorded by quotas/Throttles.java."""

from pathlib import Path

from fencepost.broker.quotas.rates import TokenBucket, WindowedRate, Windows

RECORDED = Path(__file__).parent / "quotas" / "throttles.tsv"


def waits(kind: str, shape: Windows, limit: float, events: list[tuple[int, float]]) -> list[int]:
    rate, bucket, now_ms, found = WindowedRate(), TokenBucket(), 1_000_000_000_000, []
    for pause_ms, amount in events:
        now_ms += pause_ms
        if kind == "bucket":
            bucket.record(amount, limit, now_ms)
            found.append(bucket.throttle_ms(limit, now_ms, shape))
        else:
            rate.record(amount, now_ms, shape)
            found.append(rate.throttle_ms(limit, now_ms, shape))
    return found


def test_throttle_times_are_within_1_ms_of_those_recorded_from_kafkas_classes() -> None:
    over = total = 0
    for line in RECORDED.read_text().splitlines():
        kind, number, size_ms, limit, came, answers = line.split("\t")
        events = [(int(pause_ms), float(amount)) for pause_ms, amount in (each.split(":") for each in came.split())]
        found = waits(kind, Windows(int(number), int(size_ms)), float(limit), events)
        recorded = [int(each) for each in answers.split()]
        assert all(abs(ours - kafkas) <= 1 for ours, kafkas in zip(found, recorded, strict=True)), line
        over += sum(each > 0 for each in recorded)
        total += len(recorded)
    assert (total, over > 300) == (1_200, True)
