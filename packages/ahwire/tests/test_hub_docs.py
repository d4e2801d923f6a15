"""The reference is made of the docstrings, so a message's docstring tells of each of its fields."""

import inspect
import re

import attrs
import pytest

from ahwire import hub

MESSAGES = [
    thing
    for name in hub.__all__
    if inspect.isclass(thing := getattr(hub, name)) and attrs.has(thing)
]


def explained(kind):
    """Names in the section `Attributes` of a docstring, in order."""
    _, _, section = inspect.getdoc(kind).partition("\nAttributes:\n")
    return re.findall(r"^    (\w+): \S", section, re.MULTILINE)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_field_of_a_message_is_explained_in_its_order(kind):
    assert explained(kind) == [field.name for field in attrs.fields(kind)]


def test_messages_are_found():
    assert {hub.Event, hub.EventsReply, hub.Heartbeat, hub.Silence} <= set(MESSAGES)
