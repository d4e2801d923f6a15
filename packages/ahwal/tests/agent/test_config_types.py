"""Values of a wrong type in Python: named, never taken for something else."""

from decimal import Decimal
from pathlib import Path

import pytest

from ahwal import AgentConfig, Client, ConfigError
from ahwal.agent import load_config
from ahwal.agent._remote import apply
from ahwal.agent._settings import SETTINGS, Kind
from ahwire import limits
from ahwire.agent_pb2 import AgentConfig as RemoteConfig

FLAGS = [s.field for s in SETTINGS if s.kind is Kind.FLAG]
NUMBERS = [s.field for s in SETTINGS if s.kind in (Kind.SECONDS, Kind.BYTES, Kind.COUNT)]
TEXTS = [s.field for s in SETTINGS if s.kind is Kind.TEXT]


def problem(**values):
    with pytest.raises(ConfigError) as caught:
        AgentConfig(**values)
    (found,) = caught.value.problems
    return found


@pytest.mark.parametrize("field", FLAGS)
@pytest.mark.parametrize("value", ["false", "no", "", 0, 1, None, []])
def test_only_truth_values_switch(field, value):
    """A text such as "false" would otherwise switch the verification of certificates off."""
    found = problem(**{field: value})
    assert field in found
    assert "True or False" in found
    assert getattr(AgentConfig(**{field: True}), field) is True


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", ["30", None, True, False, [], Decimal(30), 30j])
def test_only_numbers_are_numbers(field, value):
    assert field in problem(**{field: value})


def test_a_count_is_whole():
    assert "catch_up_batches is 2.5" in problem(catch_up_batches=2.5)


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("value", [5, b"x", ["x"], True, {}, object()])
def test_only_texts_are_texts(field, value):
    assert field in problem(**{field: value})


@pytest.mark.parametrize("field", ["state_dir", "ca_file", "client_cert", "client_key", "log_file"])
def test_a_path_may_be_a_path(field):
    path = Path("/some") / "where"
    assert getattr(AgentConfig(**{field: path}), field) == "/some/where"


def test_what_a_proxy_address_holds_is_not_shown_whatever_its_type():
    for value in (b"http://u:CANARY@p", ["http://u:CANARY@p"]):
        assert "CANARY" not in problem(proxy_url=value)


@pytest.mark.parametrize("value", ["cpu", b"cpu", 5, None, ["cpu", 5], [None], {"cpu": 1}])
def test_names_are_a_sequence_of_texts_and_no_text(value):
    """A text alone would switch off the collectors named by its letters, which are none."""
    assert "disabled_collectors" in problem(disabled_collectors=value)


@pytest.mark.parametrize("value", [["cpu"], ("cpu",), {"cpu"}, iter(["cpu"])])
def test_every_collection_of_names_is_taken(value):
    assert AgentConfig(disabled_collectors=value).disabled_collectors == ("cpu",)


@pytest.mark.parametrize(
    "value",
    [
        "a=b",
        ["a"],
        [("a", "b")],
        5,
        None,
        {"shard": 5},
        {5: "a"},
        {"a": None},
        {"a": b"v"},
        {"": "v"},
        {" ": "v"},
        {"a": "\0"},
        {"a": "v" * 1025},
        {"n" * 201: "v"},
        {"a": "\udc80"},
        {f"l{n}": "v" for n in range(28)},
    ],
)
def test_labels_are_what_every_sample_can_carry(value):
    """They are added to all samples: one that cannot be sent would cost all of them."""
    assert "labels" in problem(labels=value)


def test_labels_at_their_limits_are_taken_and_the_error_names_the_wrong_one():
    most = {f"{n:02}" + "n" * 198: "v" * 1024 for n in range(27)}
    assert AgentConfig(labels=most).labels == most
    assert "'rack'" in problem(labels={"site": "berlin", "rack": 7})


def test_in_a_file_numbers_are_texts_and_nothing_is_not(tmp_path):
    file = tmp_path / "agent.yaml"
    file.write_text("labels: {rack: 7, share: 0.5}")
    assert load_config(file=str(file)).labels == {"rack": "7", "share": "0.5"}
    for wrong in ("{site: }", "{site: [a]}", "{site: {a: b}}", "{'': a}"):
        file.write_text(f"labels: {wrong}")
        with pytest.raises(ConfigError, match="labels"):
            load_config(file=str(file))


def test_labels_from_afar_are_taken_as_far_as_a_sample_can_carry_them():
    config = AgentConfig(labels={f"own{n}": "v" for n in range(20)})
    remote = RemoteConfig(labels={f"remote{n:02}": "v" for n in range(20)})
    remote.labels["own0"] = "changed"
    remote.labels["long"] = "v" * (limits.MAX_LABEL_VALUE_BYTES + 1)
    remote.labels["nul"] = "\0"
    remote.labels["edge"] = "v" * limits.MAX_LABEL_VALUE_BYTES
    effective, refused = apply(config, remote)
    assert len(effective.labels) == limits.MAX_LABELS_PER_SERIES
    assert effective.labels["own0"] == "changed"
    assert len(effective.labels["edge"]) == limits.MAX_LABEL_VALUE_BYTES
    assert AgentConfig(labels=effective.labels)
    for named in ("'long'", "'nul'", "27"):
        assert any(named in sentence for sentence in refused)
    assert not any("e+" in sentence for sentence in refused)


CLIENT = [
    *[("collector_url", value) for value in (5, None, b"https://h")],
    *[("token", value) for value in (5, b"t", ["t"])],
    *[("send_timeout_seconds", value) for value in ("15", None, 0, -1, True, float("nan"))],
    *[("insecure_skip_verify", value) for value in ("false", 0, None)],
    *[("allow_plain_http", value) for value in ("no", 1)],
    *[("http2", value) for value in ("no", None)],
    *[(f, v) for f in ("ca_file", "client_cert", "client_key") for v in (5, b"x", ["x"])],
    *[("proxy_url", value) for value in (5, b"http://u:CANARY@p")],
    *[("user_agent", value) for value in (5, b"x", "a\nb", "é")],
]


@pytest.mark.parametrize(("name", "value"), CLIENT)
def test_a_client_names_the_argument_that_is_wrong(name, value):
    with pytest.raises(ConfigError, match=name) as caught:
        Client(**{"collector_url": "https://collector.example", name: value})
    assert "CANARY" not in str(caught.value)


def test_a_client_takes_paths(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        Client(collector_url="https://collector.example", ca_file=tmp_path / "none.pem")


def test_a_range_error_says_from_where_the_value_came(tmp_path):
    file = tmp_path / "agent.yaml"
    file.write_text("interval: 1h\nlog: {level: loud}\nlabels: {'': x}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(
            file=str(file), environ={"AH_CATCH_UP_BATCHES": "70"}, flags={"send_timeout": "5m"}
        )
    found = sorted(caught.value.problems)
    assert [text.split(": ")[0] for text in found] == sorted(
        ["--send-timeout", "AH_CATCH_UP_BATCHES", str(file), str(file), str(file)]
    )


def test_a_wrong_list_is_shown_unless_it_could_hold_a_secret(tmp_path):
    file = tmp_path / "agent.yaml"
    file.write_text("labels: [a, b]\nproxy_url: ['http://u:CANARY@p']\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file=str(file))
    assert "labels is ['a', 'b']; valid is" in str(caught.value)
    assert "CANARY" not in str(caught.value)
