"""How a batch is judged at the ingest door."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahwire import limits
from ahwire.agent_pb2 import AgentStats, Label, MetricsBatch, Point, Series
from ahwire.batch import count_points, validate
from ahwire.errors import TooLargeError
from ahwire.limits import Limits
from ahwire.names import is_reserved_label

NOW = 1_781_518_830_000
DAY = 86_400_000


def series(name="cpu", labels=(), points=((NOW, 1.0),)):
    return Series(
        name=name,
        labels=[Label(name=key, value=value) for key, value in labels],
        points=[Point(ts_ms=ts, value=value) for ts, value in points],
    )


def batch(*items, seq=7):
    return MetricsBatch(
        seq=seq,
        sent_at_ms=3,
        collected_at_ms=2,
        series=items,
        stats=AgentStats(rss_bytes=5),
    )


def rejects(judged):
    return [(entry.index, entry.code, entry.points) for entry in judged.rejected]


# names and labels


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            series,
            st.text(max_size=5),
            st.lists(
                st.tuples(
                    st.one_of(
                        st.text(max_size=4),
                        st.sampled_from(
                            [
                                "company_id",
                                "Company-ID",
                                "server.id",
                                "AGENT_ID",
                                "vm_account_id",
                                "vm project id",
                                "__name__",
                                "__x",
                                "",
                                "a",
                                "A",
                            ]
                        ),
                    ),
                    st.text(max_size=3),
                ),
                max_size=8,
            ),
            st.lists(
                st.tuples(
                    st.sampled_from([NOW, NOW - DAY, NOW - DAY - 1, 0, -1, 2**63 - 1]), st.floats()
                ),
                max_size=3,
            ),
        ),
        max_size=5,
    )
)
def test_no_reserved_label_comes_through_and_every_point_is_counted(items):
    # C5
    whole = batch(*items)
    judged = validate(whole, now_ms=NOW)
    for clean in judged.series:
        names = [name for name, _ in clean.labels]
        assert not any(is_reserved_label(name) for name in names)
        assert names == sorted(set(names))
        assert clean.name.startswith("ah_")
        assert clean.points
        assert all(math.isfinite(value) for _, value in clean.points)
    assert judged.accepted_points == sum(len(clean.points) for clean in judged.series)
    assert judged.dropped_points == sum(entry.points for entry in judged.rejected)
    assert judged.accepted_points + judged.dropped_points == count_points(whole)
    pairs = [(entry.index, entry.code) for entry in judged.rejected]
    assert len(set(pairs)) == len(pairs)


def test_labels_are_normalised_then_cleaned_then_the_first_duplicate_wins():
    labels = [
        ("company-id", "evil"),
        ("Server_ID", "evil"),
        ("", "evil"),
        ("a.b", "1"),
        ("a_b", "2"),
        ("a-b", "3"),
        ("9", "n"),
        ("_", "u"),
    ]
    judged = validate(batch(series("cpu.x", labels)), now_ms=NOW)
    (clean,) = judged.series
    assert clean.name == "ah_cpu_x"
    assert clean.labels == (("_", "u"), ("_9", "n"), ("a_b", "1"))
    assert judged.rejected == []
    (warning,) = judged.warnings
    assert warning == (
        "2 duplicate labels dropped, the first of each name kept (series 0, label a_b)"
    )


def test_one_warning_for_all_duplicates_of_a_batch():
    items = [series("m", [("a", "1"), ("a", "2")]) for _ in range(50)]
    (warning,) = validate(batch(*items), now_ms=NOW).warnings
    assert warning.startswith("50 duplicate labels")


@pytest.mark.parametrize("name", ["", " ", "\n\t"])
def test_series_without_a_name_is_refused(name):
    judged = validate(batch(series("ok"), series(name, points=((NOW, 1), (0, 2)))), now_ms=NOW)
    assert rejects(judged) == [(1, "bad_name", 2)]
    assert [clean.index for clean in judged.series] == [0]


def test_lengths_are_exact_in_bytes_of_utf8():
    # C4
    judged = validate(
        batch(
            series("n" * 200),
            series("n" * 201),
            series("é" * 100),
            series("é" * 101),
            series(labels=[("l" * 200, "v" * 1024)]),
            series(labels=[("l" * 201, "v")]),
            series(labels=[("l", "v" * 1025)]),
            series(labels=[("l", "é" * 512)]),
            series(labels=[("l", "é" * 513)]),
            series(labels=[("company_id", "v" * 2000)]),
        ),
        now_ms=NOW,
    )
    assert rejects(judged) == [(index, "too_long", 1) for index in (1, 3, 5, 6, 8)]


def test_twenty_seven_labels_are_taken_and_twenty_eight_refused():
    # C4; what is removed anyway does not count.
    free = [(f"l{number}", "v") for number in range(28)]
    reserved = [("company_id", "x"), ("__name__", "x"), ("l0", "again")]
    judged = validate(
        batch(series(labels=free[:27]), series(labels=free), series(labels=free[:27] + reserved)),
        now_ms=NOW,
    )
    assert rejects(judged) == [(1, "too_many_labels", 1)]
    assert [len(clean.labels) for clean in judged.series] == [27, 27]


def test_nul_in_a_label_is_refused_and_other_controls_are_kept():
    judged = validate(
        batch(series(labels=[("l", "a\0b")]), series(labels=[("l", '"\n\x7f{}')])), now_ms=NOW
    )
    assert rejects(judged) == [(0, "bad_label", 1)]
    assert judged.series[0].labels == (("l", '"\n\x7f{}'),)


# points


def test_window_is_exact_at_both_edges():
    # C7
    stamps = [
        NOW - DAY - 1,
        NOW - DAY,
        NOW,
        NOW + 300_000,
        NOW + 300_001,
        0,
        -1,
        2**63 - 1,
        -(2**63),
    ]
    judged = validate(batch(series(points=[(ts, 1.0) for ts in stamps])), now_ms=NOW)
    assert [ts for ts, _ in judged.series[0].points] == stamps[1:4]
    assert rejects(judged) == [(0, "in_future", 2), (0, "too_old", 4)]
    assert judged.warnings == []


@pytest.mark.parametrize(
    ("stamp", "unit"),
    [
        (NOW // 1000, "seconds"),
        (NOW // 1000 - 3 * 86_400, "seconds"),
        (NOW * 1000, "microseconds"),
        (NOW * 1_000_000, "nanoseconds"),
    ],
)
def test_wrong_unit_is_named_once(stamp, unit):
    # C7
    judged = validate(batch(series(points=[(stamp, 1.0), (stamp + 1, 1.0)])), now_ms=NOW)
    assert judged.warnings == [
        f"2 points refused: their ts_ms looks like {unit}; send Unix milliseconds"
    ]
    assert judged.series == ()
    assert judged.dropped_points == 2


def test_values_that_are_not_finite_are_refused_and_their_neighbours_kept():
    # C3
    values = [math.nan, math.inf, -math.inf, -0.0, 5e-324, float("1.8e308"), 1.0]
    judged = validate(batch(series(points=[(NOW, value) for value in values])), now_ms=NOW)
    kept = [value for _, value in judged.series[0].points]
    assert [math.copysign(1, kept[0]), *kept[1:]] == [-1.0, 5e-324, 1.0]
    assert rejects(judged) == [(0, "not_finite", 4)]


def test_point_has_one_fault_only():
    judged = validate(batch(series(points=[(0, math.nan), (0, 1.0)])), now_ms=NOW)
    assert rejects(judged) == [(0, "not_finite", 1), (0, "too_old", 1)]
    assert judged.dropped_points == 2


def test_series_without_points_are_passed_over():
    judged = validate(batch(series("", points=()), series(points=())), now_ms=NOW)
    assert (judged.series, judged.rejected, judged.warnings) == ((), [], [])


def test_heartbeat_is_clean():
    judged = validate(batch(), now_ms=NOW)
    assert (judged.accepted_points, judged.dropped_points) == (0, 0)


# limits


def test_batch_over_the_limit_of_points_is_too_large():
    most = Limits(points_per_batch=3)
    assert validate(batch(series(points=[(NOW, 1)] * 3)), now_ms=NOW, limits=most).accepted_points
    with pytest.raises(TooLargeError, match=r"4 points; at most 3"):
        validate(batch(series(points=[(NOW, 1)] * 4)), now_ms=NOW, limits=most)


def test_empty_series_count_too():
    with pytest.raises(TooLargeError, match="20001 series; at most 20000"):
        validate(batch(*[Series()] * (limits.MAX_POINTS_PER_BATCH + 1)), now_ms=NOW)


def test_too_many_series_are_refused_before_any_is_looked_into():
    """Eight mebibytes of empty ones are four million; only their number may cost anything."""

    class Untouched:
        def __len__(self):
            return 4 * 1024 * 1024

        def __iter__(self):
            raise AssertionError("looked into")

    class Batch:
        series = Untouched()

    with pytest.raises(TooLargeError, match="4194304 series"):
        validate(Batch(), now_ms=NOW)


def test_limits_are_settings():
    strict = Limits(
        labels_per_series=1,
        name_bytes=3,
        label_value_bytes=2,
        point_age_seconds=0.5,
        point_future_seconds=0,
    )
    judged = validate(
        batch(
            series("abc", [("a", "12")]),
            series("abcd"),
            series("abc", [("a", "123")]),
            series("abc", [("a", "1"), ("b", "1")]),
            series("abc", points=((NOW - 500, 1), (NOW - 501, 1), (NOW + 1, 1))),
        ),
        now_ms=NOW,
        limits=strict,
    )
    assert rejects(judged) == [
        (1, "too_long", 1),
        (2, "too_long", 1),
        (3, "too_many_labels", 1),
        (4, "in_future", 1),
        (4, "too_old", 1),
    ]


def test_largest_rejection_fits_into_a_response():
    # 20,000 series with a fault each, in an acknowledgement of at most 1 MiB.
    from ahwire.agent_pb2 import MetricsAck

    judged = validate(
        batch(*[series("m", [("l", "\0")])] * limits.MAX_POINTS_PER_BATCH), now_ms=NOW
    )
    ack = MetricsAck(ack_seq=1, rejected=judged.rejected)
    assert len(judged.rejected) == limits.MAX_POINTS_PER_BATCH
    assert ack.ByteSize() < limits.MAX_RESPONSE_BYTES
