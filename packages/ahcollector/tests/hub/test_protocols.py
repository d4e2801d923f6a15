"""Each part asks for those calls of a hub that it makes, and `Hub` is all of them together."""

import ast
import inspect
import typing

import pytest

pytest.importorskip("starlette")

from ahcollector import hub
from ahcollector.alerts import RulePuller, SilencePuller
from ahcollector.detector import Reporter
from ahcollector.enroll import EnrollProxy, Renewal
from ahcollector.hub import HttpHub, Hub
from ahcollector.ingest import ingest_app
from ahcollector.outbox import OutboxSender
from ahcollector.registry import CompanySettingsCache, FullSync, Resolver, Syncer
from ahcollector.testing import FakeHub

NARROW = {
    "AgentsHub",
    "EnrollHub",
    "EventsHub",
    "InventoryHub",
    "RenewalHub",
    "ReportsHub",
    "RulesHub",
    "SettingsHub",
    "SilencesHub",
}
ASKS = [
    (OutboxSender, "EventsHub"),
    (RulePuller, "RulesHub"),
    (SilencePuller, "SilencesHub"),
    (Reporter, "ReportsHub"),
    (ingest_app, "InventoryHub"),
    (CompanySettingsCache, "SettingsHub"),
    (Resolver, "AgentsHub"),
    (Syncer, "AgentsHub"),
    (FullSync, "AgentsHub"),
    (EnrollProxy, "EnrollHub"),
    (Renewal, "RenewalHub"),
]


def calls(protocol):
    return {
        name
        for kind in protocol.__mro__
        for name, value in vars(kind).items()
        if inspect.iscoroutinefunction(value) and not name.startswith("_")
    }


def test_hub_is_all_of_the_narrow_ones_and_none_of_them_shares_a_call():
    parts = [calls(getattr(hub, name)) for name in sorted(NARROW)]
    assert set().union(*parts) == calls(Hub)
    assert sum(map(len, parts)) == len(calls(Hub))


@pytest.mark.parametrize("implementation", [HttpHub, FakeHub])
def test_an_implementation_has_every_call_with_the_parameters_of_the_protocol(implementation):
    for name in calls(Hub):
        mine, theirs = (
            [(one.name, one.kind, one.default) for one in inspect.signature(f).parameters.values()]
            for f in (getattr(implementation, name), getattr(Hub, name))
        )
        assert mine == theirs, name


@pytest.mark.parametrize(("part", "protocol"), ASKS, ids=lambda one: getattr(one, "__name__", one))
def test_a_part_asks_for_its_calls_only(part, protocol):
    """Read from the text of the annotation: some names are imported for type checkers only."""
    annotation = inspect.signature(part).parameters["hub"].annotation
    tree = ast.parse(annotation if isinstance(annotation, str) else annotation.__name__)
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert named == {protocol}


def test_the_narrow_protocols_are_protocols():
    assert all(typing.get_origin(getattr(hub, name)) is None for name in NARROW)
    assert all(getattr(getattr(hub, name), "_is_protocol", False) for name in {*NARROW, "Hub"})
