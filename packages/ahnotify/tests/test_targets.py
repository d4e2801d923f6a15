"""A target is claimed by one owner at a time, and moved only by the owner of its try."""

from __future__ import annotations

from datetime import timedelta

import attrs
import pytest

from ahnotify.directory import Contact, RecipientKey
from ahnotify.providers.base import ProviderResult, UnknownPolicy
from ahnotify.sending._retry import RetrySchedule, after_call, overall
from ahnotify.sending._targets import Claim, NotNow, TargetStore
from ahnotify.testing import NOW, incident
from ahwire import NotificationMessage
from ahwire import notification as wire

pytestmark = pytest.mark.anyio

SCHEDULE = RetrySchedule()
CONTACT = Contact(
    tenant_id="acme",
    contact_id="c",
    recipient=RecipientKey("user", "ann"),
    channel="email",
    address="ann@acme.example",
    enabled=True,
    verified=True,
    version=1,
)
MESSAGE = NotificationMessage(
    notification_uuid="00000000-0000-5000-8000-000000000001",
    tenant_id="acme",
    incident=(incident(),),
    rule_id="silent",
    recipient=wire.Recipient(recipient_type=wire.RecipientType.USER, recipient_id="ann"),
    channel=wire.Channel(channel=wire.ChannelType.EMAIL),
    delivery_mode=wire.DeliveryMode.INSTANT,
)
LATER = NOW + timedelta(seconds=91)


@pytest.fixture
def store(database):
    return TargetStore(database=database, schedule=SCHEDULE, lease_seconds=90)


@pytest.fixture
async def target(store):
    (target,) = await store.freeze(MESSAGE, [CONTACT], NOW)
    return target


async def claim(store, target, *, now=NOW, epoch=0, owner="me", policy=UnknownPolicy.RESEND):
    found, _ = await store.claim(target, epoch=epoch, owner=owner, now=now, unknown_policy=policy)
    return found


def sent(claim, now=NOW):
    return after_call(
        ProviderResult(),
        attempt=claim.attempt,
        tries=claim.try_number,
        now=now,
        schedule=SCHEDULE,
        unknown_policy=UnknownPolicy.RESEND,
    )


async def test_targets_are_frozen_at_the_first_attempt(store, target):
    other = attrs.evolve(CONTACT, contact_id="d", address="new@acme.example")
    assert await store.freeze(MESSAGE, [CONTACT, other], NOW) == [target]


async def test_while_a_lease_runs_everybody_else_waits_for_its_end(store, target):
    assert isinstance(await claim(store, target), Claim)
    waits = await claim(store, target, owner="other", now=NOW + timedelta(seconds=1))
    assert waits == NotNow(until=NOW + timedelta(seconds=90))


async def test_a_final_row_is_never_claimed_again_even_by_one_who_read_it_before(store, target):
    mine = await claim(store, target)
    assert await store.finish(mine, sent(mine), retry_message=None, now=NOW)
    assert await claim(store, target, now=LATER) == NotNow(until=None)


async def test_a_message_of_an_older_epoch_claims_nothing(store, target):
    await store.advance_epoch(MESSAGE, 2, NOW)
    assert await claim(store, target, epoch=1) == NotNow(until=None)
    assert isinstance(await claim(store, target, epoch=2), Claim)


async def test_an_owner_that_comes_back_after_its_lease_changes_nothing(store, target):
    late = await claim(store, target, owner="late")
    new = await claim(store, target, owner="new", now=LATER)
    assert isinstance(new, Claim)
    assert new.try_number == 2
    assert not await store.finish(late, sent(late), retry_message=None, now=LATER)
    (row,) = await store.load(MESSAGE)
    assert (row.status, row.owner) == ("pending", "new")
    assert await store.finish(new, sent(new), retry_message=None, now=LATER)


async def test_four_deaths_in_the_call_end_as_unknown(store, target):
    now = NOW
    for _ in range(4):
        assert isinstance(await claim(store, target, now=now), Claim)
        now += timedelta(seconds=91)
    assert await claim(store, target, now=now) == NotNow(until=None)
    (row,) = await store.load(MESSAGE)
    assert (row.status, row.final, row.attempt) == ("unknown", True, 4)


@pytest.mark.parametrize(
    ("statuses", "whole"),
    [
        ([("pending", False)], ("pending", False)),
        ([("sent", True), ("retry", False)], ("retry", False)),
        ([("failed", True), ("unknown", False)], ("retry", False)),
        ([("sent", True), ("sent", True)], ("sent", True)),
        ([("sent", True), ("unknown", True)], ("unknown", True)),
        ([("sent", True), ("unknown", True), ("failed", True)], ("failed", True)),
    ],
)
def test_the_whole_follows_from_its_targets(statuses, whole):
    assert overall(statuses) == whole
