import json
import math
import re
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
    assert len(problems({"tsdb": {"max_batch_wait_seconds": value}})) == 1


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


#: What a setting takes that has no default to be set to; a setting's name, or its end.
TAKEN = {
    "listen": "127.0.0.1:1",
    "level": "debug",
    "format": "json",
    "security": "tls",
    "hub.base_url": "http://127.0.0.1:1",
    "ingest.public_url": "http://127.0.0.1:1",
    "ingest.trusted_proxies": "10.0.0.0/8,192.0.2.7",
    "notify.mail.sender": "a@example.test",
    "redis.addr": "127.0.0.1:6379",
    "remove_orphans": "true",
    "tls": "true",
    "bus.backend": "inproc",
    "nats.url": "nats://127.0.0.1:4222,tls://[::1]:4223",
    "tsdb.long_url": "http://127.0.0.1:2",
    "tsdb.url": "http://127.0.0.1:1",
    "worker.shards": "0-31,40",
}
#: What a setting needs beside it.
NEEDED = {
    "hub.base_url": {"AHC_HUB_TOKEN": "x"},
    "ingest.tls_cert": {"AHC_INGEST_TLS_KEY": "/k"},
    "ingest.tls_key": {"AHC_INGEST_TLS_CERT": "/c"},
    "admin.previous_token": {"AHC_ADMIN_TOKEN": "sixteen-characters"},
    "notify.mail.host": {"AHC_NOTIFY_MAIL_SENDER": "a@example.test"},
    "redis.username": {"AHC_REDIS_PASSWORD": "x"},
    "redis.tls_ca_file": {"AHC_REDIS_TLS": "true"},
    "nats.password": {"AHC_NATS_USERNAME": "u"},
    "nats.tls_ca_file": {"AHC_NATS_TLS": "true"},
    "nats.url": {"AHC_BUS_BACKEND": "jetstream"},
    "nats.username": {"AHC_NATS_PASSWORD": "x"},
    "tsdb.long_url": {"AHC_TSDB_URL": "http://127.0.0.1:1"},
    "tsdb.password": {"AHC_TSDB_USERNAME": "u"},
    "tsdb.tls_ca_file": {"AHC_TSDB_URL": "https://127.0.0.1:1"},
    "tsdb.username": {"AHC_TSDB_PASSWORD": "x"},
    "worker.shards": {"AHC_BUS_BACKEND": "redis", "AHC_REDIS_ADDR": "127.0.0.1:6379"},
}


def as_set(value):
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(str(network).removesuffix("/32") for network in value)
    return str(value)


#: Those with a variable of their own.
SINGLE = [line for line in setting_lines() if not line.name.startswith("alerting.companies")]


@pytest.mark.parametrize("line", SINGLE, ids=lambda line: line.name)
def test_every_setting_can_be_set_from_the_environment(line):
    variable = "AHC_" + line.name.replace(".", "_").upper()
    leaf = line.name.rsplit(".", 1)[-1]
    value = TAKEN.get(line.name) or TAKEN.get(leaf) or line.default or "some-16-characters"
    node = settings_from({}, {**NEEDED.get(line.name, {}), variable: value})
    for part in line.name.split("."):
        node = getattr(node, part)
    assert as_set(node) == value


RANGES = [line for line in SINGLE if re.fullmatch(r"\S+ to \S+", line.allowed)]


@pytest.mark.parametrize("line", RANGES, ids=lambda line: line.name)
def test_a_number_outside_its_range_is_one_sentence_with_name_value_and_range(line):
    least, most = (float(end) for end in line.allowed.split(" to "))
    variable = "AHC_" + line.name.replace(".", "_").upper()
    for value in (least - 1, most * 10):
        given = f"{value:.0f}" if value == int(value) else str(value)
        (found,) = problems({}, {variable: given})
        assert found == (
            f"{line.name}: '{given}' cannot be used: expected {line.allowed} (from {variable})"
        )


COMPANIES = {
    "acme": {"down_min_seconds": 600, "group_down": {"min": 3, "enabled": False}},
    "Bolt.eu:1": {"agent_interval_seconds": "60", "flap_transitions": 0},
}


def check_companies(settings):
    acme, bolt = (settings.alerting.companies[name] for name in COMPANIES)
    assert (acme.down_min_seconds, acme.agent_interval_seconds) == (600.0, None)
    assert (acme.group_down.min, acme.group_down.enabled, acme.group_down.ratio) == (3, False, None)
    assert (bolt.agent_interval_seconds, bolt.flap_transitions) == (60.0, 0)


def test_what_is_set_for_companies_is_a_mapping_by_their_ids(tmp_path):
    assert settings_from({}, {}).alerting.companies == {}
    check_companies(settings_from({"alerting": {"companies": COMPANIES}}, {}))
    path = tmp_path / "server.yaml"
    path.write_text(json.dumps({"alerting": {"companies": {"5": {"down_min_seconds": 7}}}}))
    assert load_settings(path, {}).alerting.companies["5"].down_min_seconds == 7.0
    path.write_text("alerting:\n  companies:\n    5: {down_min_seconds: 8}\n")
    assert load_settings(path, {}).alerting.companies["5"].down_min_seconds == 8.0


def test_what_is_set_for_companies_stands_in_one_variable_which_wins_over_the_file():
    data = {"alerting": {"companies": {"other": {"down_min_seconds": 5}}}}
    settings = settings_from(data, {"AHC_ALERTING_COMPANIES": json.dumps(COMPANIES)})
    check_companies(settings)
    assert "other" not in settings.alerting.companies
    assert settings_from(data, {"AHC_ALERTING_COMPANIES": ""}).alerting.companies == {}


@pytest.mark.parametrize(
    ("companies", "told"),
    [
        ({"a b": {}}, "alerting.companies.a b: expected a company's id: 1 to 128 letters"),
        ({"": {}}, "alerting.companies.'': expected a company's id"),
        ({5: {}}, "alerting.companies.5: expected a company's id"),
        ({"x" * 129: {}}, "expected a company's id"),
        ({"a": 5}, "alerting.companies.a: expected a mapping of settings below it"),
        ({"a": {"down_min": 5}}, "a.down_min: there is no such setting; did you mean down_min_s"),
        ({"a": {"down_min_seconds": 0}}, "a.down_min_seconds: 0 cannot be used: expected 1 to"),
        ({"a": {"flap_transitions": 1}}, "a.flap_transitions: 1 cannot be used: expected 0, or"),
        ({"a": {"group_down": {"ratio": 2}}}, "a.group_down.ratio: 2 cannot be used: expected 0"),
        ([], "alerting.companies: expected a mapping of names"),
        ({f"c{number}": {} for number in range(10_001)}, "10001 of them; expected 10000 at most"),
    ],
)
def test_what_cannot_be_used_for_a_company_is_one_sentence(companies, told):
    (found,) = problems({"alerting": {"companies": companies}})
    assert told in found
    if not (isinstance(companies, dict) and 5 in companies):
        variable = {"AHC_ALERTING_COMPANIES": json.dumps(companies)}
        (again,) = problems({}, variable)
        assert again.endswith(" (from AHC_ALERTING_COMPANIES)")


@pytest.mark.parametrize("text", ["{", "7", '"canary"', '{"a": {}, "a": {}}', "[" * 100_000, "NaN"])
def test_a_variable_that_is_no_mapping_is_named_and_not_quoted(text):
    (found,) = problems({}, {"AHC_ALERTING_COMPANIES": text})
    assert found.startswith("alerting.companies: expected a JSON object")
    assert "canary" not in found


def test_a_variable_for_a_single_company_is_none():
    (found,) = problems({}, {"AHC_ALERTING_COMPANIES_ACME_DOWN_MIN_SECONDS": "5"})
    assert "there is no such setting" in found


SECRETS = (
    *("hub.token", "admin.token", "redis.password", "console.password"),
    *("tsdb.password", "tsdb.bearer", "nats.password", "nats.token"),
)
#: What stands beside a secret without which it is refused.
BESIDE = {"tsdb.password": {"username": "u"}, "nats.password": {"username": "u"}}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_read_from_the_file_that_a_variable_or_a_key_names(name, tmp_path):
    (tmp_path / "secret").write_text("sixteen-characters\n")
    section, leaf = name.split(".")
    path = str(tmp_path / "secret")
    variable = f"AHC_{section}_{leaf}_FILE".upper()
    beside = BESIDE.get(name, {})
    for found in (
        settings_from({section: {**beside, f"{leaf}_file": path}}, {}),
        settings_from({section: beside}, {variable: path}),
    ):
        assert getattr(getattr(found, section), leaf).reveal() == "sixteen-characters"


@pytest.mark.parametrize(
    "given", ["10.0.0.0/8, 2001:db8::/32 192.0.2.7", ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"]]
)
def test_networks_are_a_list_or_one_text(given):
    found = settings_from({"ingest": {"trusted_proxies": given}}, {}).ingest.trusted_proxies
    assert [str(network) for network in found] == ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"]


def test_a_list_of_networks_in_a_file_is_read(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text("ingest:\n  trusted_proxies:\n    - 10.0.0.0/8\n    - ::1\n")
    found = load_settings(path, {}).ingest.trusted_proxies
    assert [str(network) for network in found] == ["10.0.0.0/8", "::1/128"]
    path.write_text("ingest: {trusted_proxies: [10.0.0.0/8, [], {}, 5]}\n")
    assert "an entry is a list" in file_problems(path, path.read_bytes())[0]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("10.0.0.0/33", "an entry is '10.0.0.0/33'; expected addresses or networks"),
        ("proxy.example", "an entry is 'proxy.example'; expected"),
        ([8], "an entry is 8; expected"),
        (8, "8 cannot be used: expected"),
        ("10.0.0.1/8", "an address within a network; write 10.0.0.0/8, or the address alone"),
        (["10.0.0.0/8"] * 257, "256 of them at most"),
        ("10.0.0.0/8\n", "control characters"),
    ],
)
def test_what_is_no_network_is_named(given, told):
    (found,) = problems({"ingest": {"trusted_proxies": given}})
    assert found.startswith("ingest.trusted_proxies: ")
    assert told in found


@pytest.mark.parametrize("word", ["true", "Yes", "ON", "1", True])
def test_true_is_true_however_it_is_spelt(word):
    assert settings_from({"registry": {"remove_orphans": word}}, {}).registry.remove_orphans is True


@pytest.mark.parametrize("word", ["", "maybe", 1, 0.0, [], "truе"])
def test_what_is_neither_true_nor_false_is_refused(word):
    (found,) = problems({"redis": {"tls": word}})
    assert found.endswith("expected true or false")


def test_no_redis_means_everything_embedded():
    assert settings_from({}, {}).redis.addr is None
    assert settings_from({}, {"AHC_REDIS_ADDR": ""}).redis.addr is None
    addr = settings_from({}, {"AHC_REDIS_ADDR": "[::1]:6379"}).redis.addr
    assert addr == Address("::1", 6379)


@pytest.mark.parametrize(
    ("redis", "told"),
    [
        ({"addr": "redis"}, "redis.addr: 'redis' cannot be used: expected host:port"),
        ({"addr": "redis:0"}, "a port from 1 to 65535"),
        ({"prefix": ""}, "expected 1 to 64 printable"),
        ({"prefix": "a b"}, "expected 1 to 64 printable"),
        ({"prefix": "a" * 65}, "expected 1 to 64 printable"),
        ({"prefix": "ah*"}, "expected none of * ? [ ]"),
        ({"prefix": "{ah"}, "one hash tag only"),
        ({"prefix": "{}ah"}, "one hash tag only"),
        ({"prefix": "{a}{b}"}, "one hash tag only"),
        ({"tls_ca_file": "/ca.pem"}, "redis.tls_ca_file: works only with redis.tls"),
        ({"username": "u"}, "redis.password: required with redis.username"),
        ({"db": -1}, "redis.db: -1 cannot be used: expected 0 to 1023"),
    ],
)
def test_a_redis_that_cannot_be_is_named(redis, told):
    (found,) = problems({"redis": redis})
    assert told in found


@pytest.mark.parametrize("prefix", ["ah:", "{ah}:", "prod{ah}x:"])
def test_a_prefix_may_hold_a_hash_tag(prefix):
    assert settings_from({"redis": {"prefix": prefix}}, {}).redis.prefix == prefix


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            {"ingest": {"compressed_bytes_max": 1 << 20, "plain_bytes_max": 1 << 19}},
            "ingest.plain_bytes_max: 524288 is under ingest.compressed_bytes_max (1048576)",
        ),
        (
            {"ingest": {"interval_min_seconds": 60, "interval_max_seconds": 30}},
            "ingest.interval_min_seconds: 60 is over ingest.interval_max_seconds (30)",
        ),
        (
            {"admin": {"previous_token": "sixteen-characters"}},
            "admin.token: required with admin.previous_token",
        ),
    ],
)
def test_limits_that_contradict_each_other_are_refused(data, told):
    (found,) = problems(data)
    assert found.startswith(told)


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://[::1",
        "ftp://hub",
        "hub.example",
        "http://u:pass-canary@hub",
        "http://h?a",
        "http://h#a",
        "http://h:0",
        "http://h:99999",
        "http://h:",
        "http://h:" + "1" * 5000,
        "http://a b",
        "http://h\\x",
        "http://ключ",
        "http:///path",
        "http://a..b",
        "http://[x]",
    ],
)
@pytest.mark.parametrize("name", ["hub.base_url", "ingest.public_url", "tsdb.url"])
def test_an_http_address_is_parsed_and_its_password_not_shown(name, url):
    section, leaf = name.split(".")
    (found,) = problems({section: {leaf: url}})
    assert found.startswith(f"{name}: ")
    assert "pass-canary" not in found
    assert len(found) < 300


@pytest.mark.parametrize("url", ["https://hub.example/base", "http://[::1]:80", "http://a:1/"])
def test_an_http_address_may_have_a_path_and_a_port(url):
    assert settings_from({"ingest": {"public_url": url}}, {}).ingest.public_url == url


@pytest.mark.parametrize("token", ["short-canary", "sixteen letters and spaces"])
def test_a_token_that_the_admin_api_would_not_take_is_refused_here(token):
    (found,) = problems({"admin": {"token": token}})
    assert found.startswith("admin.token: ")
    assert token not in found


@pytest.mark.parametrize(
    "value", [math.inf, 10**5000, "1" * 5000, "١", "1_0", b"1", "0x10", -(10**90)], ids=type
)
def test_a_number_nobody_can_use_is_refused_in_a_short_sentence(value):
    (found,) = problems({"ingest": {"metrics_burst": value}})
    assert found.startswith("ingest.metrics_burst: ")
    assert len(found) < 200


@pytest.mark.parametrize("path", ["~nosuchuser/x", "/x\0y", "/x\ny", "\ud800", "", 5])
def test_a_path_that_is_none_is_refused(path):
    (found,) = problems({"state_dir": path})
    assert found.startswith("state_dir: ")
    assert found.isprintable()


@pytest.mark.parametrize(
    "text", ["a\0b:0", "a b:0", "a..b:0", "a" * 64 + ":0", "[host]:1", "h:" + "1" * 5000, "h:٣"]
)
def test_an_address_that_nobody_can_listen_at_is_refused(text):
    (found,) = problems({"ingest": {"listen": text}})
    assert found.startswith("ingest.listen: ")
    assert found.isprintable()


def test_only_addresses_of_this_machine_are_loopback():
    for text in ("127.0.0.1:1", "[::1]:1", "localhost:1", "127.9.9.9:1", "[0:0:0:0:0:0:0:1]:1"):
        assert Address.parse(text).is_loopback
    for text in ("127.example.com:1", "0.0.0.0:1", "[::]:1"):
        assert not Address.parse(text).is_loopback


def test_an_unknown_variable_is_refused_without_its_value():
    (found,) = problems({}, {"AHC_INGEST_LISTN": "canary", "AHX_OTHER": "x"})
    assert found == "AHC_INGEST_LISTN: there is no such setting; did you mean AHC_INGEST_LISTEN?"
    assert settings_from({}, {"AHC_CONFIG": "/x", "AHX_OTHER": "x", "ahc_no": ""})
    assert len(problems({}, {"AHC_INGEST_LISTEN_FILE": "/x"})) == 1


def test_a_hundred_unknown_names_are_not_a_hundred_sentences():
    assert len(problems({f"x{number}": 1 for number in range(100)})) == 21


def test_the_sender_is_what_the_mail_provider_takes():
    for sender in ("a@", "a b@c", "a@b\nc", "почта@example.test", "Name <a@b.test>"):
        (found,) = problems({"notify": {"mail": {"host": "mail.test", "sender": sender}}})
        assert found.startswith("notify.mail.sender: ")


def test_a_login_is_not_taken_without_tls():
    mail = {"host": "mail.test", "sender": "a@b.test", "username": "u", "security": "plain"}
    (found,) = problems({"notify": {"mail": mail}})
    assert "notify.mail.username" in found
    assert "starttls or tls" in found


def test_the_collector_has_an_id():
    assert problems({"collector_id": "a/b"})[0].startswith("collector_id: 'a/b' cannot be used")
    assert "quotes" in problems({"collector_id": 7})[0]


def test_a_section_that_is_none_does_not_show_what_may_be_a_token():
    assert problems({"admin": "canary"}) == ("admin: expected a mapping of settings below it",)


def file_problems(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(SettingsError) as caught:
        load_settings(path, {})
    return caught.value.problems


def test_a_key_set_twice_is_named_with_its_lines(tmp_path):
    text = "log:\n  level: info\n  level: debug\nlog: {}\n"
    found = file_problems(tmp_path / "server.yaml", text)
    assert [problem.partition(" in the settings file")[0] for problem in found] == [
        "log.level: set in line 2 and again in line 3",
        "log: set in line 1 and again in line 4",
    ]


def test_a_date_in_a_file_is_text(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text("collector_id: 2026-99-99\n")
    assert load_settings(path, {}).collector_id == "2026-99-99"


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 5000,
        "a: " + "{a: " * 5000,
        "log: {level: " + "9" * 5000 + "}",
        "log: {level: !!int ''}",
        "log: {level: !!bool maybe}",
        "log: {level: !!python/object:os.system x}",
        "%YAML " + "9" * 5000 + ".1\n---\na: 1",
        'a: "\\UFFFFFFFF"',
        "? [a]\n: b",
        "a: &a {b: c}\nb: *a",
        "a: &a [*a]",
        "a: &a {<<: *a}",
        "a: 1\n---\nb: 1",
        "log: [info]",
        "log: !!set {a}",
    ],
)
def test_a_file_that_can_break_a_parser_is_refused_in_a_sentence(tmp_path, text):
    for problem in file_problems(tmp_path / "server.yaml", text):
        assert len(problem) < 300
        assert problem.isprintable()


@pytest.mark.parametrize(
    "text",
    ["token: *canary", "token: !canary x", "token: 'canary", 'token: "a\n  canary: {', "canary"],
)
def test_a_broken_file_is_not_quoted(tmp_path, text):
    assert "canary" not in "".join(file_problems(tmp_path / "server.yaml", "hub:\n  " + text))


NAMES = st.sampled_from([part for line in setting_lines() for part in line.name.split(".")])
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates()
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(NAMES | st.text() | st.integers(), inner, max_size=5)
    ),
    max_leaves=20,
)
VARIABLES = st.sampled_from(
    [
        "AHC_" + line.name.replace(".", "_").upper() + end
        for line in setting_lines()
        for end in ("", "_FILE")
    ]
)
URLS = st.text(alphabet="htps:/[]@.#?%0189ab~", max_size=30)


def told(read, *arguments):
    try:
        read(*arguments)
    except SettingsError as error:
        return error.problems
    return ()


@settings(deadline=None)
@given(
    data=st.dictionaries(NAMES | st.text(), TREES | URLS, max_size=6),
    environment=st.dictionaries(VARIABLES | st.text(), st.text() | URLS, max_size=4),
)
def test_whatever_is_set_there_are_settings_or_sentences(data, environment):
    assert all(problem.isprintable() for problem in told(settings_from, data, environment))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary()
    | st.text(alphabet=string.printable).map(str.encode)
    | st.lists(
        st.sampled_from(
            ["log:", "\n", "\n  ", "level: ", "&a ", "*a", "!!int ", "{", "}", "[", "]"]
        )
        | st.sampled_from(
            ["- ", "? ", ": ", "<<", "|", ">", "'", '"', "%YAML 1.1", "---", "#", ","]
        )
        | st.text(max_size=3),
    ).map(lambda parts: "".join(parts).encode("utf-8", "surrogatepass"))
)
def test_whatever_a_file_holds_there_are_settings_or_sentences(tmp_path, data):
    path = tmp_path / "server.yaml"
    path.write_bytes(data)
    assert all(problem.isprintable() for problem in told(load_settings, path, {}))
