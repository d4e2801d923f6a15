"""Tenants, recipients, contacts and keys."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from ahnotify import ApiKeys
from ahnotify.database import _control_tables as t
from ahnotify.directory import RecipientKey, Role
from ahnotify.errors import ConflictError, InvalidError, NotFoundError

pytestmark = pytest.mark.anyio

ANN = RecipientKey("user", "ann")


@pytest.fixture
async def acme(directory):
    await directory.put_tenant("acme")
    await directory.put_recipient("acme", "user", "ann")


async def put(directory, address="ann@acme.example", **options):
    return await directory.put_contact(
        "acme", "user", "ann", "email", address, **({"verified": True} | options)
    )


async def test_everything_may_be_put_twice(directory, acme):
    await directory.put_tenant("acme")
    await directory.put_recipient("acme", "user", "ann")
    first, second = await put(directory), await put(directory)
    assert first.contact_id == second.contact_id
    assert len(await directory.list_contacts("acme")) == 1


@pytest.mark.parametrize("zone", ["Europe", "", "../x", "europe/berlin"])
async def test_a_wrong_time_zone_is_refused(directory, zone):
    """N8."""
    with pytest.raises(InvalidError):
        await directory.put_tenant("acme", timezone=zone)


async def test_only_enabled_and_verified_contacts_are_used(directory, acme):
    await put(directory, "off@acme.example", enabled=False)
    await put(directory, "new@acme.example", verified=False)
    good = await put(directory)
    found = (await directory.snapshot()).find("acme", ANN, "email")
    assert [each.contact_id for each in found] == [good.contact_id]


async def test_a_group_reaches_everyone_in_it_once_even_when_it_holds_itself(directory, acme):
    await put(directory)
    await directory.put_recipient("acme", "user", "bob")
    await directory.put_contact("acme", "user", "bob", "email", "ann@acme.example", verified=True)
    await directory.put_recipient("acme", "team", "soc", members=[("user", "ann"), ("user", "bob")])
    await directory.put_recipient(
        "acme", "group", "all", members=[("team", "soc"), ("group", "all"), ("user", "ann")]
    )
    found = (await directory.snapshot()).find("acme", RecipientKey("group", "all"), "email")
    assert [each.address for each in found] == ["ann@acme.example"]


async def test_one_tenants_contacts_are_not_anothers(directory, acme):
    contact = await put(directory)
    await directory.put_tenant("beta")
    assert (await directory.snapshot()).find("beta", ANN, "email") == ()
    assert await directory.list_contacts("beta") == []
    for call in (directory.get_contact, directory.delete_contact):
        with pytest.raises(NotFoundError):
            await call("beta", contact.contact_id)


async def test_a_contact_is_changed_only_from_the_version_that_was_read(directory, acme):
    contact = await put(directory)
    changed = await put(directory, contact_id=contact.contact_id, enabled=False, expected_version=1)
    assert changed.version == 2
    with pytest.raises(ConflictError):
        await put(directory, contact_id=contact.contact_id, expected_version=1)
    with pytest.raises(ConflictError):
        await directory.delete_contact("acme", contact.contact_id, expected_version=1)
    await directory.delete_contact("acme", contact.contact_id, expected_version=2)
    with pytest.raises(NotFoundError):
        await directory.get_contact("acme", contact.contact_id)


async def test_one_address_of_one_recipient_is_one_contact(directory, acme):
    first = await put(directory, "a@acme.example")
    await put(directory, "b@acme.example")
    with pytest.raises(InvalidError):
        await put(directory, "b@acme.example", contact_id=first.contact_id)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("robot", "r", "email", "a@b.example"), "recipient_type"),
        (("user", "", "email", "a@b.example"), "recipient_id"),
        (("user", "ann", "pigeon", "x"), "channel"),
        (("user", "ann", "email", "ann"), "address"),
        (("user", "ann", "email", "a@b.example\r\nBcc: x@y.example"), "address"),
    ],
)
async def test_a_wrong_contact_is_refused_by_field(directory, acme, arguments, field):
    with pytest.raises(InvalidError) as error:
        await directory.put_contact("acme", *arguments)
    assert field in [name for name, _ in error.value.problems]


async def test_users_have_no_members(directory, acme):
    with pytest.raises(InvalidError):
        await directory.put_recipient("acme", "user", "x", members=[("user", "ann")])


async def test_what_has_no_tenant_is_refused(directory):
    with pytest.raises(NotFoundError):
        await directory.put_recipient("ghost", "user", "ann")


@pytest.fixture
def keys(database, clock):
    return ApiKeys(database=database, clock=clock)


async def test_a_key_is_recognised_until_it_is_revoked_and_kept_as_a_hash_only(
    keys, acme, database
):
    key = await keys.create("acme", role=Role.EDITOR)
    principal = await keys.authenticate(key.key)
    assert (principal.tenant_id, principal.role) == ("acme", "editor")
    assert key.key not in repr(key)
    async with database.read() as connection:
        (row,) = (await connection.execute(sa.select(t.api_keys))).all()
    assert key.key.encode() not in repr(row).encode()
    await keys.revoke("acme", key.key_id)
    assert await keys.authenticate(key.key) is None


async def test_a_wrong_key_is_nobodys(keys, acme):
    key = await keys.create("acme", role=Role.VIEWER)
    for wrong in (
        "",
        "x",
        "ahn_",
        key.key[:-1],
        key.key + "x",
        f"ahn_{key.key_id}_guess",
        "ahn_é_é",
    ):
        assert await keys.authenticate(wrong) is None


async def test_keys_belong_to_a_tenant_and_have_a_known_role(keys, acme):
    with pytest.raises(NotFoundError):
        await keys.create("ghost", role=Role.VIEWER)
    with pytest.raises(InvalidError):
        await keys.create("acme", role="king")
    key = await keys.create("acme", role=Role.VIEWER)
    with pytest.raises(NotFoundError):
        await keys.revoke("beta", key.key_id)
