import pytest

from ah_server.errors import SettingsError
from ah_server.settings import Address, Secret, load_settings, setting_lines, settings_from


def problems(data, environment=None):
    with pytest.raises(SettingsError) as caught:
        settings_from(data, environment or {})
    return caught.value.problems


def test_nothing_set_means_the_defaults():
    settings = settings_from({}, {})
    assert settings.ingest.listen == Address("127.0.0.1", 8420)
    assert settings.alerting.down_min_seconds == 90.0


def test_the_environment_wins_over_the_file():
    settings = settings_from(
        {"ingest": {"listen": "127.0.0.1:1"}}, {"AHC_INGEST_LISTEN": "[::1]:2"}
    )
    assert settings.ingest.listen == Address("::1", 2)


def test_every_problem_is_named_with_its_value_and_the_way_out():
    found = problems(
        {
            "ingest": {"listen": "nowhere", "metrics_burst": 0},
            "alerting": {"down_min_seconds": "soon"},
            "log": {"level": "loud"},
            "hbu": {},
        }
    )
    assert sorted(found) == [
        "alerting.down_min_seconds: 'soon' cannot be used: expected a number",
        "hbu: there is no such setting; did you mean hub?",
        "ingest.listen: 'nowhere' cannot be used: expected host:port, as in 127.0.0.1:8420",
        "ingest.metrics_burst: 0 cannot be used: expected 1 to 10000",
        "log.level: 'loud' cannot be used: expected one of debug, info, warning, error",
    ]


@pytest.mark.parametrize("value", ["nan", float("nan"), "inf", True, [], {}])
def test_a_number_is_a_finite_number_in_its_range(value):
    assert len(problems({"worker": {"max_batch_wait_seconds": value}})) == 1


@pytest.mark.parametrize("value", [1.5, "1.5", "one", True, 10**400])
def test_a_whole_number_is_whole(value):
    assert len(problems({"outbox": {"batch_max": value}})) == 1


@pytest.mark.parametrize(
    "text", ["", "8420", ":8420", "::1:8420", "host:99999", "host:-1", "host:"]
)
def test_an_address_is_host_and_port(text):
    with pytest.raises(ValueError, match=r"host:port|brackets|65535"):
        Address.parse(text)


def test_a_secret_shows_itself_nowhere(tmp_path):
    canary = "canary-4711"
    (tmp_path / "token").write_text(canary + "\n")
    settings = settings_from({"hub": {"token_file": str(tmp_path / "token")}}, {})
    assert settings.hub.token.reveal() == canary
    assert canary not in repr(settings)
    assert canary not in str(settings)


def test_a_broken_secret_is_named_without_its_value(tmp_path):
    for broken in ("line\nbreak", "nul\0", "Пароль"):
        (found,) = problems({"hub": {"token": broken}})
        assert found.startswith("hub.token: must be printable ASCII")
        assert broken not in found


def test_a_secret_file_that_is_missing_or_not_text_is_named(tmp_path):
    missing = tmp_path / "missing"
    assert "No such file" in problems({}, {"AHC_ADMIN_TOKEN_FILE": str(missing)})[0]
    missing.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in problems({}, {"AHC_ADMIN_TOKEN_FILE": str(missing)})[0]


def test_contradictions_are_refused():
    assert problems({"hub": {"base_url": "http://127.0.0.1:1"}})[0].startswith(
        "hub.token: required"
    )
    assert problems({"console": {"listen": "0.0.0.0:80"}})[0].startswith(
        "console.password: required"
    )
    assert problems({"ingest": {"tls_cert": "/x"}})[0].startswith("ingest.tls_cert")


def test_a_file_that_is_not_settings_is_named(tmp_path):
    path = tmp_path / "server.yaml"
    for text, told in [("- a", "mapping"), (":\n\t-", "not YAML"), ("a: [", "not YAML")]:
        path.write_text(text)
        with pytest.raises(SettingsError, match=told):
            load_settings(path, {})
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(tmp_path / "none", {})
    path.write_text("")
    assert load_settings(path, {}) == settings_from({}, {})


def test_every_setting_can_be_set_from_the_environment():
    samples = {"listen": "127.0.0.1:1", "level": "debug", "format": "json", "security": "tls"}
    for line in setting_lines():
        variable = "AHC_" + line.name.replace(".", "_").upper()
        leaf = line.name.rsplit(".", 1)[-1]
        value = samples.get(leaf) or line.default or "some"
        extra = {"AHC_HUB_TOKEN": "x", "AHC_INGEST_TLS_CERT": "/c", "AHC_INGEST_TLS_KEY": "/k"}
        if line.name == "hub.base_url":
            value = "http://127.0.0.1:1"
        elif line.name == "notify.mail.host":
            extra["AHC_NOTIFY_MAIL_SENDER"] = "a@example.test"
        settings = settings_from({}, {**extra, variable: value})
        node = settings
        for part in line.name.split("."):
            node = getattr(node, part)
        shown = node.reveal() if isinstance(node, Secret) else str(node)
        assert shown == value, line.name
