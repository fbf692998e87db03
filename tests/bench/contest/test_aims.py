"""The verdicts on aims, for findings that are made up."""

from dataclasses import replace

import pytest
from fencepost.bench.contest.aims import AIMS, judge
from fencepost.bench.loads.finding import Finding
from fencepost.bench.loads.window import Latencies, Sample
from fencepost.bench.measured import FIGURES, Measured
from fencepost.bench.peers.names import FSYNC, KAFKA, KAFKA_FLUSH, OS, SPARK_JAR
from fencepost.bench.verdicts import Aim, Outcome
from made_findings import latencies, made_result, rates

MORE = Aim("row", "small 64x1", "rate", FSYNC, KAFKA, 0.8)
FEWER = Aim("row", "small 64x1", "cpu_us", FSYNC, KAFKA, 0.8)


def outcome(aim: Aim, *ours: float) -> Outcome:
    """Return the result of rounds in which the other broker measures 1 each."""
    both = [
        rates(aim.scenario, FSYNC, *ours, figure=aim.figure),
        rates(aim.scenario, KAFKA, *[1.0] * len(ours), figure=aim.figure),
    ]
    return judge(both, [aim])[0].outcome


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ((0.8, 0.9, 1.2), Outcome.MET),
        ((0.6, 0.7, 0.75), Outcome.MUST),
        ((0.7, 0.9, 0.9), Outcome.MUST),  # the aim (0.8) is met in two rounds, its lower bar (0.6) in all
        ((0.3, 0.4, 0.5), Outcome.MISSED),
        ((0.5, 0.7, 0.9), Outcome.UNDECIDED),
        ((0.5, 0.9, 0.95), Outcome.UNDECIDED),
        ((0.3, 0.4, 0.7), Outcome.UNDECIDED),
    ],
)
def test_an_aim_for_a_rate_is_judged_by_the_lowest_and_highest_ratio_of_its_rounds(
    rounds: tuple[float, ...], expected: Outcome
) -> None:
    assert outcome(MORE, *rounds) is expected


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ((0.5, 0.7, 0.8), Outcome.MET),
        ((0.85, 0.9, 1.0), Outcome.MUST),
        ((0.7, 0.9, 0.9), Outcome.MUST),
        ((1.1, 1.2, 1.3), Outcome.MISSED),
        ((0.7, 0.9, 1.1), Outcome.UNDECIDED),
    ],
)
def test_an_aim_for_a_cost_is_judged_in_the_opposite_direction_of_a_rate(
    rounds: tuple[float, ...], expected: Outcome
) -> None:
    assert outcome(FEWER, *rounds) is expected


def test_a_ratio_compares_medians_and_its_spread_compares_rounds() -> None:
    verdict = judge([rates("small 64x1", FSYNC, 8, 10, 12), rates("small 64x1", KAFKA, 10, 5, 8)], [MORE])[0]
    assert (verdict.ratio, verdict.low, verdict.high) == (10 / 8, 0.8, 2.0)
    assert (verdict.our_value, verdict.their_value) == (10, 8)


def test_with_unequal_counts_of_rounds_the_spread_covers_every_pair_of_rounds() -> None:
    verdict = judge([rates("small 64x1", FSYNC, 8, 12), rates("small 64x1", KAFKA, 10, 5, 8)], [MORE])[0]
    assert (verdict.low, verdict.high) == (0.8, 2.4)


def test_an_aim_is_undecided_if_a_peer_was_measured_in_a_single_round() -> None:
    for value in (0.1, 0.7, 2.0):
        assert outcome(MORE, value) is Outcome.UNDECIDED
    assert (
        judge([rates("small 64x1", FSYNC, 9, 9), rates("small 64x1", KAFKA, 1)], [MORE])[0].outcome is Outcome.UNDECIDED
    )


def test_an_aim_is_absent_without_a_figure_of_both_peers_or_if_theirs_is_0() -> None:
    ours, theirs = rates("small 64x1", FSYNC, 8), rates("small 64x1", KAFKA, 10)
    for found in (
        [],
        [ours],
        [theirs],
        [ours, rates("small 64x1", KAFKA_FLUSH, 10)],
        [ours, rates("small 64x1", KAFKA, 0.0)],
    ):
        verdict = judge(found, [MORE])[0]
        assert (verdict.outcome, verdict.ratio) == (Outcome.ABSENT, None)
    assert judge([ours, theirs], [FEWER])[0].outcome is Outcome.ABSENT  # CPU was not measured, only the rate


def test_an_aim_without_a_peer_is_judged_by_fenceposts_figure_alone() -> None:
    growth = Aim("row", "growth ids", "growth", OS, None, 1.2, 0)
    for value, expected in ((1.2, Outcome.MET), (1.21, Outcome.MISSED)):
        verdict = judge([rates("growth ids", OS, value, value, figure="growth")], [growth])[0]
        assert (verdict.outcome, verdict.ratio, verdict.their_value) == (expected, value, None)
    assert judge([], [growth])[0].outcome is Outcome.ABSENT


def test_the_ratio_of_p99_to_p50_is_judged_round_by_round() -> None:
    steady = Aim("row", "transactions", "p99_over_p50", FSYNC, None, 3, 0)
    found = rates("transactions", FSYNC, 1.0, 1.0, p50_ms=[2.0, 4.0], p99_ms=[6.0, 8.0])
    verdict = judge([found], [steady])[0]
    assert (verdict.outcome, verdict.ratio, verdict.low, verdict.high) == (Outcome.MET, 2.5, 2.0, 3.0)
    assert judge([replace(found, figures={"p99_ms": (6.0,)})], [steady])[0].outcome is Outcome.ABSENT
    assert judge([rates("transactions", FSYNC, 1.0, p50_ms=[0.0], p99_ms=[1.0])], [steady])[0].outcome is Outcome.ABSENT


def test_the_aims_include_the_p99_ratio_and_the_rate_of_durable_writes() -> None:
    """These two were once lost when other aims were moved."""
    aims = [replace(each, row="") for each in AIMS]
    assert Aim("", "transactions 16p 4x1", "p99_over_p50", FSYNC, None, 3, 0) in aims
    assert Aim("", "small 16x1 over 16", "rate", FSYNC, KAFKA_FLUSH, 2.5) in aims


def test_a_verdict_reports_a_saturated_client_and_a_p99_above_the_peers() -> None:
    ours = Measured("small 64x1", "request", FSYNC, {"rate": (1.0,), "p99_ms": (3.0,)}, saturated=True)
    theirs = rates("small 64x1", KAFKA, 1.0, p99_ms=[2.0])
    verdict = judge([ours, theirs], [MORE])[0]
    assert (verdict.full, verdict.p99_above) == ((FSYNC,), True)
    assert (verdict.our_p99_ms, verdict.their_p99_ms) == (3.0, 2.0)
    assert not judge([rates("small 64x1", FSYNC, 1.0), theirs], [MORE])[0].p99_above


def test_as_measured_turns_the_samples_of_a_finding_into_one_figure_per_round() -> None:
    first = Sample(100, 10_000_000, 2.0, 50_000_000, 60_000_000, 0.5, latencies(1.0, 2.0, 3.0))
    second = Sample(400, 10_000_000, 2.0, 50_000_000, 70_000_000, 0.98, latencies(9.0), others_cpu=0.02)
    found = Finding("small 64x1", "request", OS, [first, second], warm=False).as_measured()
    assert found.figures["rate"] == (50, 200)
    assert found.figures["mb_per_second"] == (5, 5)
    assert found.figures["cpu_us"] == (500, 125)
    assert found.figures["cpu_ms_per_mb"] == (5, 5)
    assert found.figures["p50_ms"] == pytest.approx((2.0, 9.0), 0.001)
    assert found.figures["rss_mb"] == (60, 70)
    assert (found.saturated, found.warm, found.others_cpu) == (False, False, 0.02)
    assert found.client_share == pytest.approx(0.74)
    assert (found.quantiles[0.5], found.quantiles[1.0]) == (pytest.approx(2.0, 0.001), pytest.approx(9.0, 0.001))
    assert Latencies.decode(found.histogram).count == 4
    assert first.latencies.count == 3


def test_a_finding_omits_figures_whose_measurement_is_zero() -> None:
    found = Finding("end to end 2,000/s", "record", OS, [Sample(10, 0, 1.0, 0, 0, 0.0)]).as_measured()
    assert found.figures == {"rate": (10,)}
    assert (found.median("cpu_us"), found.spread("cpu_us")) == (None, None)


def test_each_load_whose_rate_or_cpu_is_judged_has_an_aim_for_its_p99() -> None:
    """Only loads that wait for answers have a meaningful p99: at full speed the latency is the length of the queue."""
    judged = {aim.scenario for aim in AIMS if aim.theirs in (KAFKA, KAFKA_FLUSH) and aim.figure in ("rate", "cpu_us")}
    waiting = {scenario for scenario in judged if scenario.split()[0] in ("small", "batch", "transactions", "end")}
    assert {"small 1x1", "small 16x1 over 16", "small 64x1", "small 16x5", "transactions 16p 4x1"} <= waiting
    for scenario in waiting:
        tails = {(aim.ours, aim.theirs) for aim in AIMS if (aim.scenario, aim.figure) == (scenario, "p99_ms")}
        assert tails == {(FSYNC, KAFKA), (FSYNC, KAFKA_FLUSH), (OS, KAFKA)}


def test_an_aim_for_p99_is_judged_by_the_highest_and_lowest_ratio_of_its_rounds() -> None:
    tail = Aim("row", "small 64x1", "p99_ms", FSYNC, KAFKA, 1.2)
    assert outcome(tail, 0.9, 1.1, 1.2) is Outcome.MET
    assert outcome(tail, 0.9, 1.1, 1.4) is Outcome.MUST
    assert outcome(tail, 0.9, 1.1, 1.6) is Outcome.UNDECIDED
    assert outcome(tail, 1.6, 2.9, 2.9) is Outcome.MISSED


def test_every_aim_is_unique_valid_and_gets_an_outcome() -> None:
    assert len({(aim.scenario, aim.figure, aim.ours, aim.theirs) for aim in AIMS}) == len(AIMS)
    for aim in AIMS:
        assert aim.figure in FIGURES
        assert aim.holds(aim.aim, aim.must)
        may_be_missed = aim.theirs in (KAFKA, KAFKA_FLUSH, SPARK_JAR)  # by a quarter; other bounds hold exactly
        assert (aim.must != aim.aim) == may_be_missed
    judged = {verdict.aim: verdict.outcome for verdict in made_result().verdicts}
    assert set(judged) == set(AIMS)
    assert set(judged.values()) == set(Outcome)
