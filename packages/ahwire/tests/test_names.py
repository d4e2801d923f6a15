import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahwire.names import is_id, is_reserved_label, metric_name, normalise_name

ID = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$"
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@pytest.mark.parametrize("text", ["a", "0", "acme", "web:1", "a.b-c_d", "A" * 128])
def test_ids(text):
    assert is_id(text)


@pytest.mark.parametrize(
    "text", ["", "-a", ".a", "_a", ":a", "a b", "a\n", "ä", "é1", "a/b", "A" * 129, "a\0", "１"]
)
def test_no_ids(text):
    assert not is_id(text)


@settings(deadline=None)
@given(st.text(max_size=130))
def test_id_is_what_the_contract_s_expression_says(text):
    assert is_id(text) == bool(re.match(ID, text) and not text.endswith("\n"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", ""),
        ("cpu", "cpu"),
        ("cpu.usage", "cpu_usage"),
        ("9x", "_9x"),
        ("a:b", "a_b"),
        ("Đà", "__"),
        ("a\0b", "a_b"),
        ("CPU", "CPU"),
    ],
)
def test_normalise_name(text, name):
    assert normalise_name(text) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [("cpu", "ah_cpu"), ("ah_cpu", "ah_cpu"), ("ah.cpu", "ah_cpu"), ("9", "ah__9"), ("", "")],
)
def test_metric_name_begins_with_the_prefix_once(text, name):
    assert metric_name(text) == name


@settings(deadline=None)
@given(st.text())
def test_normal_names_are_valid_and_stay(text):
    name = normalise_name(text)
    assert LABEL.fullmatch(name) or (name == "" and text == "")
    assert normalise_name(name) == name
    assert metric_name(metric_name(text)) == metric_name(text)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "company_id",
        "Company_ID",
        "company-id",
        "company.id",
        "SERVER_ID",
        "agent id",
        "vm_account_id",
        "VM-project-ID",
        "__name__",
        "__x",
        "-_x",
        "\u00e9\u00e9x",
    ],
)
def test_reserved_labels_in_every_spelling(name):
    assert is_reserved_label(name)


@pytest.mark.parametrize("name", ["company", "_company_id", "company_id2", "_x", "name", "agent"])
def test_labels_that_are_free(name):
    assert not is_reserved_label(name)
