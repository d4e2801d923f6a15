"""Whatever stands in a file, the environment or the flags: one clear error, or a valid value."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ahwal import AgentConfig, ConfigError
from ahwal.agent import load_config
from ahwal.agent._settings import SETTINGS, Kind

KEYS = [setting.key for setting in SETTINGS]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["30s", "-5", "1e400", "9" * 400, "0x" + "f" * 5000, ".inf", "2023-13-45"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def problems_of(**sources):
    """What is wrong, a sentence each; nothing when it is a configuration."""
    try:
        config = load_config(**sources)
    except ConfigError as error:
        return error.problems or ("an error that says nothing",)
    assert isinstance(config, AgentConfig)
    return ()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("any") / "agent.yaml"


@given(data=st.binary(max_size=200))
@example(b"interval: 2023-13-45")
@example(b"interval: 0x" + b"f" * 5000)
@example(b"catch_up_batches: 0x" + b"f" * 5000)
@example(b"labels: {a: 0x" + b"f" * 5000 + b"}")
@example(b"0x" + b"f" * 5000 + b": 5")
@example(b"buffer: {max_bytes: .inf}")
@example(b"buffer: {max_bytes: .nan}")
@example(b"interval: &a [*a]")
@example(b"labels: &a {x: *a}")
@example(b"? [1, 2]\n: 3")
@example(b"? {a: b}\n: 3")
@example(b"a: !!python/object:os.system x")
@example(b"a: !!binary '!!!'")
@example(b"a: !!timestamp x")
@example(b"a: !!int x")
@example(b"a: !!bool x")
@example(b"a: !!float x")
@example(b"--- 1\n--- 2")
@example(b"[" * 150)
@example(b'state_dir: "a\\0b"')
@example(b"\xff\xfe\x00")
def test_any_bytes_in_the_file_are_a_configuration_or_an_error_that_names_it(file, data):
    file.write_bytes(data)
    assert all(0 < len(problem) < 2000 for problem in problems_of(file=str(file)))


@given(key=st.sampled_from(KEYS), value=VALUES)
def test_any_value_of_any_setting_is_valid_or_named(file, key, value):
    yaml = pytest.importorskip("yaml")
    section, _, name = key.rpartition(".")
    document = {section: {name: value}} if section else {key: value}
    file.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    problems = problems_of(file=str(file))
    assert all(key in problem or "YAML" in problem for problem in problems)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@given(
    environ=st.dictionaries(st.sampled_from([s.variable for s in SETTINGS]), TEXTS, max_size=4),
    flags=st.dictionaries(st.sampled_from(KEYS), TEXTS, max_size=4),
)
def test_any_texts_in_the_environment_and_the_flags_are_valid_or_named_with_their_source(
    environ, flags
):
    by_key = {setting.key: setting for setting in SETTINGS}
    known = [*environ, *flags, *(by_key[key].flag for key in flags)]
    known += [s.key for s in SETTINGS if s.variable in environ]
    known += ["state_dir", "proxy_url", "collector_url", "https://"]
    problems = problems_of(environ=environ, flags=flags)
    assert all(any(name in problem for name in known) for problem in problems)


NUMBERS = [s for s in SETTINGS if s.kind in (Kind.SECONDS, Kind.BYTES, Kind.COUNT)]


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda s: s.key)
@pytest.mark.parametrize("source", ["file", "environ", "flags"])
def test_a_number_out_of_its_range_is_named_with_it_from_every_source(file, setting, source):
    over = str(int(setting.high) + 1)
    section, _, name = setting.key.rpartition(".")
    file.write_text(f"{section}:\n  {name}: {over}\n" if section else f"{name}: {over}\n")
    sources = {
        "file": {"file": str(file)},
        "environ": {"environ": {setting.variable: over}},
        "flags": {"flags": {setting.key: over}},
    }[source]
    with pytest.raises(ConfigError) as caught:
        load_config(**sources)
    (problem,) = caught.value.problems
    assert setting.key in problem
    assert setting.range in problem


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.key)
def test_a_setting_that_is_misspelt_is_named_with_the_right_one(file, setting):
    last = setting.key[-1]
    wrong = setting.key + (last if last in string.ascii_letters else "x")
    section, _, name = wrong.rpartition(".")
    file.write_text(f"{section}:\n  {name}: 1\n" if section else f"{name}: 1\n")
    with pytest.raises(ConfigError, match=f"did you mean {setting.key}"):
        load_config(file=str(file))
    with pytest.raises(ConfigError, match=f"did you mean {setting.variable}"):
        load_config(environ={setting.variable + last.upper(): "1"})


def test_variables_of_other_programs_are_left_alone():
    environ = {"AH_HOME": "/x", "AH_CONFIG": "y", "AH_LICENSE": "z", "AHC_INTERVAL": "1"}
    assert load_config(environ=environ) == AgentConfig()
