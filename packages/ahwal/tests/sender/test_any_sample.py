"""Whatever a host hands over as samples and labels: nothing costs more than itself, all is counted.

A metric with a mistake in it must never stop the ones beside it, least of all the whole agent.
"""

import datetime as dt
import decimal
import enum
import logging
import math
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahwal import DropReason, MemoryQueue, Sample, Sender
from ahwire.agent_pb2 import MetricsBatch


class Hostile:
    """Raises at whatever is asked of it."""

    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __str__


class HostileMapping(dict):
    def items(self):
        raise RuntimeError("no items")


WRONG_NAMES = [5, None, b"x", ("a",), True, Hostile(), "", "  ", "n" * 201]
WRONG_VALUES = ["text", "", None, [], {}, 1j, Hostile(), dt.datetime(2026, 1, 1)]
NOT_FINITE = [math.nan, math.inf, -math.inf, "nan", 10**400, decimal.Decimal("Infinity")]
WRONG_LABELS = [
    {5: "a"},
    {None: "a"},
    {b"n": "a"},
    {"a": None},
    {"a": b"v"},
    {"a": ["v"]},
    {"a": uuid.UUID(int=1)},
    {"a": Hostile()},
    {"a": "v" * 1025},
    {"a": "\0"},
    {"n" * 201: "v"},
    {f"l{n}": "v" for n in range(28)},
    {f"l{n}": "v" for n in range(5000)},
    None,
    "a=b",
    5,
    ["a"],
    [("a", "b")],
    Hostile(),
    HostileMapping(),
]
ANYTHING = [None, 5, "text", b"bytes", ("t", 1), {"a": 1}, Hostile(), Sample]


def make_sender(**options):
    queue = MemoryQueue(max_bytes=1 << 24)
    return queue, Sender(queue=queue, transport=None, **options)


def series(queue):
    return [
        (one.name, {label.name: label.value for label in one.labels})
        for entry in queue.peek(1000, 1 << 30)
        for one in MetricsBatch.FromString(entry.data).series
    ]


def law(sender):
    status = sender.status()
    return status.produced + status.inherited == (
        status.delivered + sum(status.dropped.values()) + status.queued
    )


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        *((lambda name=name: Sample(name, 1), "bad_sample") for name in WRONG_NAMES),
        *((lambda value=value: Sample("w", value), "bad_sample") for value in WRONG_VALUES),
        *((lambda value=value: Sample("w", value), "not_finite") for value in NOT_FINITE),
        *((lambda labels=labels: Sample("w", 1, labels), "bad_sample") for labels in WRONG_LABELS),
        *((lambda thing=thing: thing, "bad_sample") for thing in ANYTHING),
    ],
)
def test_what_cannot_be_sent_costs_itself_alone_and_is_counted(wrong, reason):
    queue, sender = make_sender()
    enqueued = sender.append([Sample("before", 1), wrong(), Sample("after", 2)])
    assert (enqueued.points, enqueued.on_disk) == (2, True)
    assert enqueued.dropped == {DropReason(reason): 1}
    assert series(queue) == [("before", {}), ("after", {})]
    assert law(sender)


@given(
    st.lists(
        st.builds(
            Sample,
            st.sampled_from(WRONG_NAMES) | st.text(max_size=5),
            st.sampled_from(WRONG_VALUES + NOT_FINITE) | st.floats(),
            st.sampled_from(WRONG_LABELS) | st.dictionaries(st.text(max_size=3), st.text()),
        )
        | st.sampled_from(ANYTHING),
        max_size=5,
    )
)
def test_any_mixture_is_stored_or_counted_and_never_raises(samples):
    _, sender = make_sender(labels={"site": "x"})
    enqueued = sender.append(samples)
    assert enqueued.points + sum(enqueued.dropped.values()) == len(samples)
    assert law(sender)


def test_numbers_and_truth_values_are_labels_as_their_text():
    class Colour(enum.StrEnum):
        RED = "red"

    queue, sender = make_sender()
    sender.append([Sample("x", True, {"code": 200, "share": 0.5, "ok": True, "c": Colour.RED})])
    assert series(queue) == [("x", {"code": "200", "share": "0.5", "ok": "True", "c": "red"})]


def test_what_is_a_number_by_itself_is_a_value():
    for value in (decimal.Decimal("1.5"), "1.5", 1.5):
        assert Sample("x", value).value == 1.5


def test_samples_with_more_labels_than_a_batch_may_have_cost_only_themselves():
    """The judging of a batch gives up on all of it when its labels are far too many."""
    queue, sender = make_sender()
    labels = {f"l{n}": "v" for n in range(60)}
    enqueued = sender.append([*(Sample("w", n, labels) for n in range(19_000)), Sample("good", 1)])
    assert enqueued.points == 1
    assert enqueued.dropped == {DropReason.BAD_SAMPLE: 19_000}
    assert series(queue) == [("good", {})]


def test_the_log_names_each_metric_once_and_why(caplog):
    _, sender = make_sender()
    for _ in range(3):
        sender.append([Sample("jobs", None), Sample("jobs", None), Sample("good", 1), ("t", 1)])
    sender.append([Sample("other", 1, {"a": None})])
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert lines == [
        (
            "3 samples cannot be sent and are left out: 'jobs' (its value is None, not a number), "
            "tuple (it is no ahwal.Sample)"
        ),
        "1 sample cannot be sent and is left out: 'other' (its label 'a' is None, not a text)",
    ]


def test_names_without_end_do_not_fill_the_log_or_the_memory(caplog):
    _, sender = make_sender()
    for n in range(300):
        sender.append([Sample(f"m{n}", None)])
    lines = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(lines) == 100
    assert "further" in lines[-1].getMessage()


@pytest.mark.parametrize(
    "labels",
    [
        {5: "a"},
        {"a": None},
        {"": "v"},
        {"a": "v" * 1025},
        {"a": "\0"},
        {"n" * 201: "v"},
        {"a": Hostile},
    ],
)
def test_a_label_for_all_samples_that_cannot_be_sent_is_left_out_alone_and_named_once(
    labels, caplog
):
    queue, sender = make_sender(labels={"site": "x", **labels})
    for _ in range(3):
        assert sender.append([Sample("good", 1)]).points == 1
    assert series(queue) == [("good", {"site": "x"})] * 3
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "label" in caplog.text


def test_labels_for_all_samples_never_push_a_sample_over_the_limit():
    """They are added in their order as far as a sample has room; its own come first."""
    queue, sender = make_sender(labels={f"all{n}": "v" for n in range(40)})
    own = {f"own{n}": "v" for n in range(20)}
    assert sender.append([Sample("bare", 1), Sample("rich", 1, own)]).points == 2
    bare, rich = (labels for _, labels in series(queue))
    assert list(bare) == [f"all{n}" for n in range(27)]
    assert set(rich) == {*own, *(f"all{n}" for n in range(7))}


@pytest.mark.parametrize("given", [lambda: None, lambda: 5, Hostile, lambda: ("t",)])
def test_what_is_no_list_of_samples_at_all_is_counted_as_one(given):
    _, sender = make_sender()
    enqueued = sender.append(given())
    assert (enqueued.points, enqueued.dropped) == (0, {DropReason.BAD_SAMPLE: 1})
    assert law(sender)


@pytest.mark.parametrize("at", ["now", {}, 10**30, math.nan, math.inf, b"1", Hostile])
def test_a_time_that_is_none_costs_the_samples_that_it_is_for(at):
    _, sender = make_sender()
    enqueued = sender.append([Sample("a", 1), Sample("b", 1)], collected_at_ms=at)
    assert (enqueued.points, enqueued.dropped) == (0, {DropReason.BAD_SAMPLE: 2})
    assert sender.append([Sample("a", 1)], collected_at_ms=1.6e12).points == 1
    assert law(sender)


def test_an_iterable_that_raises_half_way_gives_nothing_and_its_error_goes_through():
    def broken():
        yield Sample("a", 1)
        raise LookupError("half way")

    queue, sender = make_sender()
    with pytest.raises(LookupError):
        sender.append(broken())
    assert series(queue) == []
    assert law(sender)
