"""`ah-server check` with VictoriaMetrics and the bus: what it names, and how a start waits."""

import json
import logging
import socket
import uuid
from itertools import pairwise

import pytest
from servers import FREE, clean_environment, running

from ah_server.cli import main
from ah_server.errors import DependencyError
from ah_server.state_directory import StateDirectory
from ah_server.wiring import Seams
from ahcollector.clock import SystemClock
from ahcollector.store._victoria_http import VictoriaHttp

pytestmark = pytest.mark.service
NOBODY = "http://127.0.0.1:1"
PASSWORD = "canary-51c7"


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    def run(**environment):
        clean_environment(monkeypatch)
        state = {"AHC_STATE_DIR": str(tmp_path / "state"), "AHC_REDIS_TIMEOUT_SECONDS": "3"}
        for name, value in {**FREE, **state, **environment}.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        code = main(["check"])
        said = capsys.readouterr()
        assert PASSWORD not in said.out + said.err
        return code, said.out, said.err

    return run


def test_what_fits_is_said_to(check, private_redis, victoria_metrics):
    code, out, _ = check(
        AHC_REDIS_ADDR=f"127.0.0.1:{private_redis.port}", AHC_TSDB_URL=victoria_metrics.url
    )
    assert code == 0
    assert f"ok  tsdb {victoria_metrics.url} " in out
    assert f"ok  bus is on redis 127.0.0.1:{private_redis.port}" in out


def test_companies_of_which_something_is_set_are_named(check):
    names = [f"c{number}" for number in range(7)]
    code, out, _ = check(AHC_ALERTING_COMPANIES=json.dumps({name: {} for name in names}))
    assert code == 0
    assert "ok  alerting.companies are c0, c1, c2, c3, c4 and 2 more\n" in out
    code, _, err = check(AHC_ALERTING_COMPANIES='{"c0": {"down_min_seconds": 0}}')
    assert code == 3
    assert "alerting.companies.c0.down_min_seconds: 0 cannot be used" in err


def test_a_missing_flag_is_told_once_and_no_error(check, start_service, caplog):
    from testkit import VictoriaMetricsServer

    store = start_service(VictoriaMetricsServer, flags=("-dedup.minScrapeInterval=0ms",))
    code, out, _ = check(AHC_TSDB_URL=store.url)
    assert code == 0
    # Without a log of its own, the command shows these lines on stderr.
    [told] = [line for line in caplog.messages if "-dedup.minScrapeInterval=1ms" in line]
    assert "start it with -dedup.minScrapeInterval=1ms" in told
    assert "dedup" not in out


def test_a_stream_that_stays_larger_than_it_is_set_is_told(check, start_service, caplog):
    """Nothing is lowered, and who lowered the setting is told so."""
    from testkit import NatsServer

    nats_server = start_service(NatsServer)
    prefix = f"test-{uuid.uuid4().hex}"
    nats = {
        "AHC_NATS_URL": nats_server.url,
        "AHC_NATS_PREFIX": prefix,
        "AHC_BUS_BACKEND": "jetstream",
    }
    for size in (80 << 20, 70 << 20):
        code, out, err = check(AHC_NATS_BUFFER_BYTES=str(size), **nats)
        assert code == 0, err
        assert f"ok  bus is on the JetStream of {nats_server.url}" in out
    [told] = [line for line in caplog.messages if "nats stream edit" in line]
    assert f"stream {prefix}_bus of NATS has max_bytes {80 << 20}, and {70 << 20} is set" in told


def test_labels_that_would_be_cut_end_with_3(check, start_service):
    from testkit import VictoriaMetricsServer

    store = start_service(VictoriaMetricsServer, flags=("-maxLabelsPerTimeseries=20",))
    code, _, err = check(AHC_TSDB_URL=store.url)
    assert code == 3
    assert f"tsdb.url: {store.url} cannot be used: " in err
    assert "-maxLabelsPerTimeseries=64" in err


def test_a_door_that_takes_more_than_the_store_keeps_ends_with_3(check, victoria_metrics):
    code, _, err = check(AHC_TSDB_URL=victoria_metrics.url, AHC_INGEST_LABEL_VALUE_BYTES_MAX="4096")
    assert code == 3
    assert "lower ingest.label_value_bytes_max" in err


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ({"AHC_TSDB_URL": NOBODY}, f"tsdb.url: {NOBODY} cannot be used (VictoriaMetrics cannot be"),
        ({"AHC_REDIS_ADDR": "127.0.0.1:1"}, "redis.addr: 127.0.0.1:1 cannot be used ("),
        (
            {"AHC_NATS_URL": "nats://127.0.0.1:1", "AHC_BUS_BACKEND": "jetstream"},
            "nats.url: nats://127.0.0.1:1 cannot be used: ",
        ),
    ],
    ids=["tsdb", "redis", "nats"],
)
def test_what_is_missing_is_named_and_ends_with_3(
    check, private_redis, victoria_metrics, missing, told
):
    there = {
        "AHC_REDIS_ADDR": f"127.0.0.1:{private_redis.port}",
        "AHC_TSDB_URL": victoria_metrics.url,
    }
    code, _, err = check(**{**there, **missing})
    assert code == 3
    assert told in err
    assert "or correct" in err


@pytest.fixture
def locked(start_service):
    from testkit import VictoriaMetricsServer

    login = ("-httpAuth.username=u", f"-httpAuth.password={PASSWORD}")
    return start_service(VictoriaMetricsServer, flags=login)


@pytest.mark.parametrize(
    ("login", "code"),
    [
        ({"AHC_TSDB_USERNAME": "u", "AHC_TSDB_PASSWORD": PASSWORD}, 0),
        ({"AHC_TSDB_USERNAME": "u", "AHC_TSDB_PASSWORD": "x" + PASSWORD}, 3),
        ({"AHC_TSDB_BEARER": PASSWORD}, 3),
        ({}, 3),
    ],
    ids=["right", "wrong password", "bearer", "none"],
)
def test_a_login_is_tried_and_never_shown(check, locked, login, code):
    found, _, err = check(AHC_TSDB_URL=locked.url, **login)
    assert found == code
    assert code == 0 or "check the store's username and password, or bearer" in err


def test_a_page_of_metrics_that_is_locked_ends_with_3_where_starts_are_to_be_told(
    check, start_service
):
    """Nothing would ever be written."""
    from testkit import VictoriaMetricsServer

    store = start_service(VictoriaMetricsServer, flags=(f"-metricsAuthKey={PASSWORD}",))
    code, _, err = check(AHC_TSDB_URL=store.url)
    assert code == 3
    assert f"tsdb.url: {store.url} cannot be used (VictoriaMetrics answered 401 to GET /met" in err
    assert "nobody knows whether it was started again" in err
    assert "or set durable_after_seconds to 0" in err
    code, _, err = check(AHC_TSDB_URL=store.url, AHC_TSDB_DURABLE_AFTER_SECONDS="0")
    assert code == 0, err


def test_a_page_of_metrics_that_is_anothers_ends_with_3_where_starts_are_to_be_told(
    check, victoria_metrics, monkeypatch
):
    """As behind a proxy that has that page to itself."""
    real = VictoriaHttp.get

    async def get(self, path, *arguments, **more):
        page = await real(self, path, *arguments, **more)
        return b"proxy_requests_total 7\n" if path == "/metrics" else page

    monkeypatch.setattr(VictoriaHttp, "get", get)
    code, _, err = check(AHC_TSDB_URL=victoria_metrics.url)
    assert code == 3
    assert f"tsdb.url: {victoria_metrics.url} cannot be used: GET /metrics of its url does" in err
    assert "or set durable_after_seconds to 0" in err


def test_certificates_that_are_none_are_named(check, tmp_path):
    (tmp_path / "ca.pem").write_text("no certificate")
    for path in (tmp_path / "ca.pem", tmp_path / "none.pem"):
        code, _, err = check(AHC_TSDB_URL="https://127.0.0.1:1", AHC_TSDB_TLS_CA_FILE=str(path))
        assert code == 3
        assert f"tsdb.tls_ca_file: {path} cannot be used" in err


@pytest.fixture
def on_nats(nats_server):
    return {
        "AHC_BUS_BACKEND": "jetstream",
        "AHC_NATS_URL": nats_server.url,
        "AHC_NATS_PREFIX": f"t{uuid.uuid4().hex}",
        "AHC_NATS_BUFFER_BYTES": str(64 << 20),
    }


def test_a_jetstream_that_fits_is_said_to(check, on_nats, caplog):
    code, out, err = check(**on_nats)
    assert code == 0, err
    assert f"ok  bus is on the JetStream of {on_nats['AHC_NATS_URL']}" in out
    # The store is this process's own.
    assert "set tsdb.url before there is a second one" in caplog.text


def test_a_jetstream_without_room_ends_with_3_at_once(check, on_nats):
    code, _, err = check(**{**on_nats, "AHC_NATS_BUFFER_BYTES": str(1 << 44)})
    assert code == 3
    assert "nats.url: " in err
    assert "max_file_store" in err
    assert "start it" not in err


class HastyClock(SystemClock):
    """Sleeps are over at once and count in full."""

    def __init__(self):
        self.slept = 0.0
        self.wakes = lambda: None

    def monotonic(self):
        return super().monotonic() + self.slept

    async def sleep(self, seconds):
        self.slept += seconds
        self.wakes()
        await super().sleep(min(seconds, 0.01))


@pytest.mark.anyio
async def test_a_start_waits_a_minute_for_a_store_and_says_so(tmp_path, caplog):
    clock = HastyClock()
    began = clock.monotonic()
    with pytest.raises(DependencyError) as caught:
        async with running(
            tmp_path, data={"tsdb": {"url": NOBODY}}, seams=Seams(clock=clock, patient=True)
        ):
            pass
    assert f"tsdb.url: {NOBODY} cannot be used" in str(caught.value)
    assert clock.monotonic() - began >= 60
    waits = [one for one in caplog.records if one.message == "waiting for VictoriaMetrics"]
    # It looks each second, and says so at once and every ten.
    assert clock.slept >= 50
    left = [one.seconds_left for one in waits]
    assert left[0] == 60
    assert 5 <= len(left) <= 6
    assert all(10 <= one - next_one <= 12 for one, next_one in pairwise(left))
    assert {one.levelno for one in waits} == {logging.WARNING}


@pytest.mark.anyio
async def test_a_store_that_comes_within_the_minute_is_taken(tmp_path, start_service):
    from testkit import VictoriaMetricsServer

    store = start_service(VictoriaMetricsServer)
    store.stop()
    clock = HastyClock()
    clock.wakes = lambda: store.start() if clock.slept == 3 else None
    seams = Seams(clock=clock, patient=True)
    async with running(tmp_path, data={"tsdb": {"url": store.url}}, seams=seams) as server:
        assert (await server.page("ingest", "/readyz")).status_code == 200


@pytest.mark.anyio
async def test_a_redis_that_goes_while_the_store_is_waited_for_is_waited_for_too(
    tmp_path, private_redis, start_service, caplog
):
    from testkit import VictoriaMetricsServer

    store = start_service(VictoriaMetricsServer)
    store.stop()

    def go_and_come():
        waits = [one.message for one in caplog.records if one.message.startswith("waiting for ")]
        if "waiting for Redis" in waits and private_redis.pid is None:
            private_redis.start()
        elif "waiting for VictoriaMetrics" in waits and store.pid is None:
            private_redis.kill()
            store.start()

    clock = HastyClock()
    clock.wakes = go_and_come
    async with running(
        tmp_path,
        data={
            "redis": {"addr": f"127.0.0.1:{private_redis.port}", "timeout_seconds": 3},
            "tsdb": {"url": store.url},
        },
        seams=Seams(clock=clock, patient=True),
    ) as server:
        assert (await server.page("ingest", "/readyz")).status_code == 200
    assert any(one.message == "waiting for Redis" for one in caplog.records)


def test_all_that_is_away_is_named_at_once(check):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
    code, out, err = check(
        AHC_REDIS_ADDR=f"127.0.0.1:{port}",
        AHC_TSDB_URL=NOBODY,
        AHC_BUS_BACKEND="jetstream",
        AHC_NATS_URL="nats://127.0.0.1:1",
        AHC_HUB_BASE_URL=NOBODY,
        AHC_HUB_TOKEN="some-16-characters",
        AHC_NOTIFY_MAIL_HOST="127.0.0.1",
        AHC_NOTIFY_MAIL_PORT="1",
        AHC_NOTIFY_MAIL_SENDER="a@example.test",
    )
    assert (code, out) == (3, "")
    named = [line.split()[1] for line in err.splitlines() if line.startswith("ah-server: ")]
    assert named == ["redis.addr:", "tsdb.url:", "nats.url:", "hub.base_url:", "notify.mail.host:"]


def test_beside_a_server_that_runs_the_services_are_reached_all_the_same(
    check, victoria_metrics, tmp_path
):
    """It has the ports and the state directory, which is told, each of them."""
    holder = StateDirectory.open(tmp_path / "state")
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        taken = [f"127.0.0.1:{door.getsockname()[1]}" for door in (one, other)]
        code, out, err = check(
            AHC_TSDB_URL=victoria_metrics.url,
            AHC_INGEST_LISTEN=taken[0],
            AHC_NOTIFY_LISTEN=taken[1],
        )
    holder.close()
    assert code == 4
    assert f"ingest.listen: another program listens on {taken[0]}" in err
    assert f"notify.listen: another program listens on {taken[1]}" in err
    assert f"state_dir {tmp_path / 'state'} is in use by process" in err
    assert out.startswith(f"ok  tsdb {victoria_metrics.url} ")
