"""Settings: ranges, sources and their order, and every wrong value named."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahwal import AgentConfig, ConfigError
from ahwal.agent import load_config
from ahwal.agent._settings import SETTINGS, Kind, parse, to_text

MIB = 1 << 20


@pytest.mark.parametrize(
    ("field", "low", "high", "below", "above"),
    [
        ("interval_seconds", 10, 300, 9.99, 300.1),
        ("send_timeout_seconds", 1, 60, 0.9, 61),
        ("buffer_bytes_max", 4 * MIB, 1024 * MIB, 4 * MIB - 1, 1024 * MIB + 1),
        ("buffer_age_seconds_max", 60, 7 * 86400, 59, 7 * 86400 + 1),
        ("catch_up_batches", 1, 10, 0, 11),
        ("shutdown_flush_seconds", 0, 10, -0.1, 10.1),
        ("memory_limit_bytes", 16 * MIB, 4096 * MIB, 16 * MIB - 1, 4096 * MIB + 1),
    ],
)
def test_each_number_has_its_range_and_the_error_names_it(field, low, high, below, above):
    setting = next(s for s in SETTINGS if s.field == field)
    for good in (low, high):
        assert getattr(AgentConfig(**{field: good}), field) == good
    for bad in (below, above, math.nan, math.inf):
        with pytest.raises(ConfigError) as caught:
            AgentConfig(**{field: bad})
        assert f"{setting.key} ({field})" in str(caught.value) or setting.key == field
        assert setting.key in str(caught.value)
        assert setting.range.split(" to ")[1].split(" ")[0] in str(caught.value)


def test_intervals_under_ten_seconds_need_to_be_allowed():
    with pytest.raises(ConfigError, match="allow_short_interval"):
        AgentConfig(interval_seconds=1)
    assert AgentConfig(interval_seconds=1, allow_short_interval=True).interval_seconds == 1
    with pytest.raises(ConfigError):
        AgentConfig(interval_seconds=0.5, allow_short_interval=True)


def test_every_wrong_value_is_named_at_once():
    with pytest.raises(ConfigError) as caught:
        AgentConfig(interval_seconds=1, on_revoked="panic", log_level="loud", collector_url="x")
    assert len(caught.value.problems) == 4


def test_later_sources_win(tmp_path):
    file = tmp_path / "agent.yaml"
    file.write_text(
        "interval: 1m\nsend_timeout: 20\nbuffer:\n  max_bytes: 8MiB\n  max_age: 2h\n"
        "limits:\n  memory_limit: 1GiB\nlabels:\n  site: berlin\n  rack: 7\n"
        "disabled_collectors: [swap]\nlog:\n  format: json\nallow_remote_config: false\n"
    )
    config = load_config(
        file=str(file),
        environ={"AH_INTERVAL": "45s", "AH_SEND_TIMEOUT": "30s", "AH_ON_REVOKED": "exit", "X": "y"},
        flags={"interval": "90s"},
    )
    assert config.interval_seconds == 90
    assert config.send_timeout_seconds == 30
    assert config.on_revoked == "exit"
    assert config.buffer_bytes_max == 8 * MIB
    assert config.buffer_age_seconds_max == 7200
    assert config.memory_limit_bytes == 1024 * MIB
    assert config.labels == {"site": "berlin", "rack": "7"}
    assert config.disabled_collectors == ("swap",)
    assert config.log_format == "json"
    assert config.allow_remote_config is False


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("intervall: 30s", "did you mean interval?"),
        ("interval: soon", "interval is 'soon'; valid is a duration like 30s"),
        ("interval: [1]", "interval is [1]; valid is a duration"),
        ("buffer:\n  max_bytes: 1KiB", "4 MiB to 1 GiB"),
        ("catch_up_batches: many", "1 to 10"),
        ("allow_remote_config: maybe", "true or false"),
        ("labels: 5", "names with text values"),
        ("disabled_collectors: {a: b}", "a list of names"),
        ("- a\n- b", "setting: value"),
        ("a: b: c", "not valid YAML at line 1"),
        ("collector_url: 7", "collector_url is 7"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_the_way_out(tmp_path, text, named):
    file = tmp_path / "agent.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file=str(file))
    assert named in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(file=str(tmp_path / "none.yaml"))


def test_an_error_in_yaml_does_not_quote_the_file(tmp_path):
    file = tmp_path / "agent.yaml"
    file.write_text('proxy_url: "http://u:SECRET@p"\n  bad: [')
    with pytest.raises(ConfigError) as caught:
        load_config(file=str(file))
    assert "SECRET" not in str(caught.value)


def test_the_proxys_password_is_not_in_the_repr():
    assert "SECRET" not in repr(AgentConfig(proxy_url="http://u:SECRET@proxy:3128"))


def test_keys_variables_and_flags_are_each_there_once():
    for names in (
        [s.key for s in SETTINGS],
        [s.variable for s in SETTINGS],
        [s.flag for s in SETTINGS],
        [s.field for s in SETTINGS],
    ):
        assert len(set(names)) == len(names)


@given(st.data())
def test_what_is_shown_of_a_setting_is_read_back_as_the_same_value(data):
    values = {
        Kind.SECONDS: st.floats(0.001, 700_000) | st.integers(1, 700_000).map(float),
        Kind.BYTES: st.integers(1, 1 << 40) | st.integers(1, 1024).map(lambda n: n << 20),
        Kind.COUNT: st.integers(0, 10**6),
        Kind.FLAG: st.booleans(),
        Kind.NAMES: st.lists(st.from_regex(r"[a-z]+", fullmatch=True)).map(tuple),
        Kind.PAIRS: st.dictionaries(*[st.from_regex(r"[a-z]+", fullmatch=True)] * 2),
        Kind.TEXT: st.text(),
    }
    setting = data.draw(st.sampled_from(SETTINGS))
    value = data.draw(values[setting.kind])
    assert parse(setting, to_text(setting, value)) == pytest.approx(value)
