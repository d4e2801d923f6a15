"""The rule store and the cache that follows it."""

from __future__ import annotations

import pytest

from ahnotify import RuleCache
from ahnotify.errors import ConflictError, DatabaseUnavailableError, InvalidError, NotFoundError
from ahnotify.testing import INSTANT_RULE, incident, seed

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tenant(directory):
    await directory.put_tenant("acme")
    await directory.put_tenant("beta")


async def test_putting_the_same_rule_again_changes_nothing(rules, tenant, clock):
    first = await rules.put("acme", "r", INSTANT_RULE)
    await clock.advance(60)
    second = await rules.put("acme", "r", INSTANT_RULE)
    assert (first.created, second.created) == (True, False)
    assert (second.rule, second.version) == (first.rule, 1)


async def test_a_change_keeps_the_birthday_and_grows_the_version(rules, tenant, clock):
    first = await rules.put("acme", "r", INSTANT_RULE)
    await clock.advance(60)
    second = await rules.put("acme", "r", INSTANT_RULE | {"name": "New"})
    assert second.version == 2
    assert second.rule.created_at == first.rule.created_at
    assert second.rule.updated_at > first.rule.updated_at


async def test_an_old_version_is_refused(rules, tenant):
    await rules.put("acme", "r", INSTANT_RULE)
    await rules.put("acme", "r", INSTANT_RULE | {"name": "New"}, expected_version=1)
    with pytest.raises(ConflictError):
        await rules.put("acme", "r", INSTANT_RULE | {"name": "Newer"}, expected_version=1)
    with pytest.raises(ConflictError):
        await rules.delete("acme", "r", expected_version=1)
    with pytest.raises(ConflictError):
        await rules.put("acme", "r", INSTANT_RULE, expected_version=0)


async def test_a_deleted_rule_is_gone_and_its_version_is_never_given_again(rules, tenant):
    await rules.put("acme", "r", INSTANT_RULE)
    await rules.delete("acme", "r")
    with pytest.raises(NotFoundError):
        await rules.get("acme", "r")
    with pytest.raises(NotFoundError):
        await rules.delete("acme", "r")
    again = await rules.put("acme", "r", INSTANT_RULE)
    assert again.created
    assert again.version == 3


async def test_one_tenant_does_not_see_anothers_rule(rules, tenant):
    await rules.put("acme", "r", INSTANT_RULE)
    assert await rules.list_rules("beta") == []
    with pytest.raises(NotFoundError):
        await rules.get("beta", "r")
    with pytest.raises(NotFoundError):
        await rules.delete("beta", "r")


async def test_a_tenant_must_be_there(rules):
    with pytest.raises(NotFoundError, match="ghost"):
        await rules.put("ghost", "r", INSTANT_RULE)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"filters": {"severity": []}}, "filters.severity"),
        ({"channels": ["pigeon"]}, "channels[0]"),
        ({"template_policy": "mine"}, "template_policy"),
        ({"timezone": "europe/berlin"}, "timezone"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
async def test_a_wrong_rule_is_refused_by_field(rules, tenant, change, field):
    with pytest.raises(InvalidError) as error:
        await rules.put("acme", "r", INSTANT_RULE | change)
    assert field in [name for name, _ in error.value.problems]


async def test_a_definition_cannot_name_another_tenant(rules, tenant):
    stored = await rules.put("acme", "r", INSTANT_RULE | {"tenant_id": "beta", "rule_id": "x"})
    assert (stored.rule.tenant_id, stored.rule.rule_id) == ("acme", "r")


@pytest.fixture
def cache(rules, clock):
    return RuleCache(store=rules, clock=clock)


async def test_the_cache_follows_changes_and_deletions(rules, directory, cache):
    await seed(directory, rules)
    await cache.reload()
    assert (await cache.catalog()).rules.match(incident()) != []
    await rules.put("acme", "silent", INSTANT_RULE | {"enabled": False})
    await cache.reload()
    assert (await cache.catalog()).rules.match(incident()) == []
    await rules.put("acme", "silent", INSTANT_RULE)
    await cache.reload()
    await rules.delete("acme", "silent")
    await cache.reload()
    assert (await cache.catalog()).rules.match(incident()) == []


async def test_ten_changes_in_one_interval_are_one_read(rules, directory, clock):
    await seed(directory, rules)
    reads = []

    class Counting(type(rules)):
        async def changes(self, since_revision=0):
            found = await super().changes(since_revision)
            reads.append(len(found.changed))
            return found

    counting = Counting(database=rules._database, clock=clock)
    cache = RuleCache(store=counting, clock=clock)
    await cache.reload()
    for number in range(10):
        await rules.put("acme", "silent", INSTANT_RULE | {"name": f"Name {number}"})
    await cache.reload()
    assert reads == [1, 1]


async def test_a_failed_reload_keeps_the_last_good_rules(rules, directory, clock):
    await seed(directory, rules)

    class Failing(type(rules)):
        broken = False

        async def changes(self, since_revision=0):
            if self.broken:
                raise DatabaseUnavailableError("away")
            return await super().changes(since_revision)

    store = Failing(database=rules._database, clock=clock)
    cache = RuleCache(store=store, clock=clock)
    await cache.reload()
    store.broken = True
    with pytest.raises(DatabaseUnavailableError):
        await cache.reload()
    assert (await cache.catalog()).rules.match(incident()) != []
    await clock.advance(60)
    assert cache.age_seconds == 60
