"""The page of the hub's contract has the calls that are made, and examples that can be read."""

import inspect
import json
import re
from pathlib import Path

import pytest

from ah_server.hub import app as hub_module
from ahcollector.hub import HttpHub
from ahwire import hub

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "http-hub.md").read_text(
    encoding="utf-8"
)
CALL = re.compile(r"^### `((?:GET|POST) (/\S+))`$", re.MULTILINE)
KINDS = {name.lower(): getattr(hub, name) for name in hub.__all__}


def sections():
    """Yield (call, its text)."""
    pieces = CALL.split(PAGE)
    for call, text in zip(pieces[1::3], pieces[3::3], strict=True):
        yield call, re.split(r"^##+ ", text, maxsplit=1, flags=re.MULTILINE)[0]


def examples():
    """Yield (call, message, JSON): the nth example is of the nth message that the section names."""
    for call, text in sections():
        named = "\n".join(re.findall(r"^(?:Body|Answer): .*$", text, re.MULTILINE))
        kinds = re.findall(r"\(#body-(\w+)\)", named)
        shown = re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert kinds or not shown, call
        yield from ((call, kind, one) for kind, one in zip(kinds, shown, strict=False))


def test_the_page_has_each_call_that_the_development_hub_answers():
    source = inspect.getsource(hub_module.hub_app)
    routes = re.findall(r'Route\(PREFIX \+ "([^"]+)",.*methods=\["(\w+)"\]', source)
    assert {f"{method} {path}" for path, method in routes} == {call for call, _ in sections()}


def test_the_page_has_each_path_that_the_collector_asks_for():
    source = inspect.getsource(HttpHub)
    asked = {re.sub(r"\{.*", "{company_id}", one) for one in re.findall(r'"(/[a-z/]+.*?)"', source)}
    assert asked == {call.partition(" ")[2] for call, _ in sections()}


@pytest.mark.parametrize(("call", "kind", "text"), list(examples()))
def test_an_example_is_read_by_the_contract_with_each_of_its_fields(call, kind, text):
    message = KINDS[kind].from_json(text.encode())
    back = json.loads(message.to_json())
    known = {**back, "code": "fenced", "message": json.loads(text).get("message")}
    assert set(json.loads(text)) <= set(known), call


def test_every_message_that_is_sent_or_answered_is_named_by_a_call():
    answers = {kind for _, text in sections() for kind in re.findall(r"\(#body-(\w+)\)", text)}
    inner = {
        "agentsettings",
        "event",
        "groupdownsettings",
        "labelmatcher",
        "recurrence",
        "rejectedevent",
        "seen",
        "silence",
        "thresholdrule",
    }
    messages = set(re.findall(r"\{ #body-(\w+) \}", PAGE))
    assert answers == messages - inner
