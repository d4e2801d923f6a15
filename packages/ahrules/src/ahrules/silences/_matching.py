"""What a silence's matchers look at, and when they hold.

An event's `server_id`, `agent_id`, `rule_id`, `severity` and `type` are looked at under these
names; every other name is one of the event's labels. What an event does not have, and a label that
is no text, is the empty string.

| op  | holds when                                                 | with an empty value    |
| --- | ---------------------------------------------------------- | ---------------------- |
| eq  | the text is the value                                      | it is absent or empty  |
| ne  | the text is not the value                                  | it is there, not empty |
| re  | the whole text matches the RE2 pattern; `.` is any sign    | it is absent or empty  |
| nre | the whole text does not match                              | it is there, not empty |

A pattern sees the first 4,096 characters of a text, and those of one silence have at most 25,000
steps of RE2's together.

**Everything.** A matcher chooses nothing when

- on `type` and `severity`: it holds for every value that there is;
- on `server_id`, `agent_id` and `rule_id`: it holds for the empty string, or for each of a list of
  ids of all kinds, as `.+` does;
- on a label: it holds for the empty string, so that events without the label pass.

**Nothing.** A matcher on `type` or `severity` that holds for none of their values is a fault: the
sets are closed, so it is misspelt.

A silence all of whose matchers choose nothing must say `all: true`: `re .*`, `ne` of a name that is
none, `nre` and `eq` of the empty string alone are no choice.
"""

import difflib
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from ahrules._matchers import Test, compile_each
from ahrules._reading import shown
from ahrules.errors import FieldError
from ahwire.hub import EventSeverity, EventType, JsonValue, LabelMatcher, MatchOp, Silence


class EventFields(Protocol):
    """What a silence looks at; `ahwire.hub.Event` and `EventDraft` have it."""

    @property
    def company_id(self) -> str:
        """Whose event it is."""

    @property
    def server_id(self) -> str | None:
        """The server, absent in group events."""

    @property
    def agent_id(self) -> str | None:
        """The agent."""

    @property
    def rule_id(self) -> str | None:
        """The rule."""

    @property
    def severity(self) -> EventSeverity | None:
        """How bad it is."""

    @property
    def type(self) -> EventType:
        """What it tells."""

    @property
    def labels(self) -> Mapping[str, JsonValue]:
        """Its labels; only those that are text count."""


_FIELDS: Final[Mapping[str, Callable[[EventFields], str | None]]] = {
    "server_id": lambda event: event.server_id,
    "agent_id": lambda event: event.agent_id,
    "rule_id": lambda event: event.rule_id,
    "severity": lambda event: event.severity,
    "type": lambda event: event.type,
}
_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "severity": tuple(EventSeverity),
    "type": tuple(EventType),
}
# Short and long, each sign by itself and beside others: what takes all of these takes every one
# that there is. Ids of servers and agents have a narrow form, ids of rules are any text.
_IDS: Final = (
    *string.ascii_letters,
    *string.digits,
    *(f"a{sign}1" for sign in "_.:-"),
    "web-1",
    "WEB_2.example:9",
    "0190b6f2-0000-7000-8000-000000000001",
    "z" * 128,
)
_TEXTS: Final = (
    *_IDS,
    *string.punctuation,
    *(f"a{sign}1" for sign in string.punctuation + " "),
    "agent_down",
    "Köln",
    "서버",
)
_PROBES: Final[Mapping[str, tuple[str, ...]]] = {
    "server_id": _IDS,
    "agent_id": _IDS,
    "rule_id": _TEXTS,
}


def labels_of(event: EventFields) -> Iterable[str]:
    """Return the names under which an event may have a text, each once."""
    return dict.fromkeys((*_FIELDS, *event.labels))


def is_closed(label: str) -> bool:
    """Whether all values that there are of a field are known."""
    return label in _VALUES


def text_of(event: EventFields, label: str) -> str:
    """Return what a matcher on `label` compares."""
    field = _FIELDS.get(label)
    found = event.labels.get(label) if field is None else field(event)
    return str(found) if isinstance(found, str) else ""


def compile_matchers(silence: Silence) -> tuple[tuple[tuple[str, Test], ...], list[FieldError]]:
    """Return (label, test) of each matcher, and what is wrong with the matchers."""
    tests: list[tuple[str, Test]] = []
    faults: list[FieldError] = []
    for index, matcher, test in compile_each(silence.matchers, faults):
        if not _can_hold(matcher.label, test):
            faults.append(FieldError(f"matchers[{index}].value", _never(matcher)))
        tests.append((matcher.label, test))
    if not faults and not silence.all and not any(_chooses(*each) for each in tests):
        faults.append(
            FieldError(
                "matchers",
                "would match everything of the company: none holds only for some events; name a"
                " server, rule, type or label, or say all: true",
            )
        )
    return tuple(tests), faults


def _can_hold(label: str, test: Test) -> bool:
    """Tell whether there is a value of a closed set, or its absence, that the test takes."""
    values = _VALUES.get(label)
    # An event always has a type, and may have no severity.
    return values is None or any(map(test, values)) or (label == "severity" and test(""))


def _never(matcher: LabelMatcher) -> str:
    known = _VALUES[matcher.label]
    near = difflib.get_close_matches(matcher.value[:64], known, n=3)
    hint = f"near names: {', '.join(near)}" if near else f"known are {', '.join(known)}"
    return f"{shown(matcher.value)} with {matcher.op} holds for no {matcher.label}; {hint}"


def _chooses(label: str, test: Test) -> bool:
    """Tell whether there are plainly events that the matcher leaves alone."""
    if label in _VALUES:
        return not all(map(test, _VALUES[label]))
    if test(""):
        return False
    return label not in _PROBES or not all(map(test, _PROBES[label]))


def fixed_values(silence: Silence) -> Iterator[tuple[str, str]]:
    """Give the (label, text) without which an event is not matched; empty texts are left out."""
    for matcher in silence.matchers:
        if matcher.op is MatchOp.EQ and matcher.value:
            yield matcher.label, matcher.value
