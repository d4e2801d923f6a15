"""Selectors name one company, and no value breaks out of them."""

import pytest
from hostile_texts import HOSTILE
from hypothesis import example, given
from hypothesis import strategies as st

from ahcollector.store._selectors import selector

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)

# What Go's strings may have after a backslash, for a reader that is not our writer.
ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
}


def read_string(text, at):
    """Read a Go string that begins at `at`; return its value and where it ends."""
    assert text[at] == '"'
    at += 1
    value = []
    while text[at] != '"':
        char = text[at]
        assert char != "\n", "a string of Go ends on its line"
        at += 1
        if char != "\\":
            value.append(char)
        elif text[at] == "u":
            number = int(text[at + 1 : at + 5], 16)
            assert not 0xD800 <= number < 0xE000, "half a character"
            value.append(chr(number))
            at += 5
        else:
            value.append(ESCAPES[text[at]])
            at += 1
    return "".join(value), at + 1


def read_selector(text):
    """Read ``{label="value",…}`` and nothing around it."""
    assert text[0] == "{"
    at, matchers = 1, []
    while True:
        end = at
        while text[end] in "abcdefghijklmnopqrstuvwxyz_":
            end += 1
        label = text[at:end]
        assert text[end] == "="
        value, at = read_string(text, end + 1)
        matchers.append((label, value))
        if text[at] == "}":
            assert at == len(text) - 1, "something stands behind the selector"
            return matchers
        assert text[at] == ","
        at += 1


@given(company=TEXTS, server=TEXTS, name=TEXTS)
@example(company='"', server="\\", name='\\"')
@example(company="\n", server='"}', name='",company_id=~".*')
def test_no_value_breaks_out_of_its_string(company, server, name):
    text = selector(company, server_id=server, name=name)
    expected = [("__name__", name), ("company_id", company), ("server_id", server)]
    assert read_selector(text) == expected
    assert read_selector(selector(company)) == [("company_id", company)]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_are_one_matcher(value):
    assert read_selector(selector(value)) == [("company_id", value)]


@pytest.mark.parametrize(
    "chosen",
    [
        {"company_id": ""},
        {"company_id": "acme", "server_id": ""},
        {"company_id": "acme", "server_id": "web-1", "name": ""},
    ],
    ids=["company", "server", "name"],
)
def test_what_is_empty_would_select_everybodys_and_is_refused(chosen):
    with pytest.raises(ValueError, match="is empty"):
        selector(**chosen)


def test_half_a_character_is_refused_before_anything_is_asked():
    with pytest.raises(ValueError, match="surrogate"):
        selector("acme\ud800")


def test_rollups_may_be_left_out():
    assert selector("acme", rollups=False) == '{company_id="acme",__name__!~".*:.*"}'
