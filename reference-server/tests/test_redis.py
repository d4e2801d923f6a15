"""A Redis that does not fit: what `check` says of it, and what a change makes of /readyz."""

import logging
import os

import anyio
import httpx
import pytest
import redis
from servers import FREE, clean_environment

from ah_server.cli import main
from ah_server.run import serve
from ah_server.settings import load_settings
from ah_server.wiring import Seams
from ahcollector.clock import SystemClock

pytestmark = pytest.mark.service

PASSWORD = "canary-77e0"


@pytest.fixture
def environment(tmp_path, monkeypatch, private_redis):
    clean_environment(monkeypatch)
    made = {
        **FREE,
        "AHC_STATE_DIR": str(tmp_path / "state"),
        "AHC_REDIS_ADDR": f"127.0.0.1:{private_redis.port}",
    }
    for name, value in made.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.fixture
def admin(private_redis):
    with redis.Redis(port=private_redis.port) as client:
        yield client


@pytest.fixture
def check(environment, capsys):
    def run(rights=None, admin=None):
        if rights is not None:
            user = ("ACL", "SETUSER", "lim", "reset", "on", f">{PASSWORD}")
            admin.execute_command(*user, *rights.split())
            environment.setenv("AHC_REDIS_USERNAME", "lim")
            environment.setenv("AHC_REDIS_PASSWORD", PASSWORD)
        capsys.readouterr()
        code = main(["check"])
        said = capsys.readouterr()
        assert PASSWORD not in said.out + said.err
        return code, said.out, said.err

    return run


def test_a_redis_that_fits_is_said_to(check):
    code, out, _ = check()
    assert code == 0
    assert "takes what is written and evicts nothing" in out


def test_a_replica_ends_with_3_and_names_the_way_out(check, admin):
    admin.replicaof("127.0.0.1", "1")
    code, _, err = check()
    assert code == 3
    assert "redis.addr: Redis at 127.0.0.1" in err
    assert "name its master" in err


@pytest.mark.parametrize(
    ("rights", "told"),
    [
        ("~ah:* &ah:* +@all -@write", "write keys"),
        ("~ah:* resetchannels +@all", "ACL SETUSER lim +publish &ah:*"),
    ],
)
def test_a_user_without_a_right_ends_with_3_and_the_right(check, admin, rights, told):
    code, _, err = check(rights, admin)
    assert code == 3
    assert told in err
    assert "gave no answer" not in err


def test_a_full_redis_is_not_told_to_be_started(check, admin):
    admin.config_set("maxmemory", "1")
    code, _, err = check()
    assert code == 3
    assert "raise maxmemory" in err
    assert "start it" not in err


@pytest.mark.parametrize(
    ("rights", "told"),
    [
        ("-config", "evicts nothing"),
        ("-config -info", "does not tell its maxmemory-policy: see that it is noeviction"),
    ],
)
def test_a_managed_redis_without_config_is_taken(check, admin, rights, told):
    code, out, _ = check(f"~ah:* &ah:* +@all {rights}", admin)
    assert code == 0
    assert told in out


class HastyClock(SystemClock):
    """Sleeps of minutes last a moment."""

    async def sleep(self, seconds):
        await super().sleep(0.05 if seconds >= 100 else seconds)


@pytest.mark.anyio
async def test_a_policy_that_changes_while_it_runs_is_named_by_readyz(environment, admin, caplog):
    told = {}
    up = anyio.Event()

    def ready(assembly):
        told.update(assembly.addresses)
        up.set()

    async def answer(client, until):
        with anyio.fail_after(20):
            while True:
                reply = await client.get(f"http://{told['admin'].netloc}/readyz")
                if until(reply.json()["checks"]):
                    return reply
                await anyio.sleep(0.05)

    def all_ok(checks):
        return set(checks.values()) == {"ok"}

    settings = load_settings(None, os.environ)
    seams = Seams(clock=HastyClock(), patient=False)
    async with (
        httpx.AsyncClient(trust_env=False) as client,
        anyio.create_task_group() as group,
    ):
        group.start_soon(lambda: serve(settings, seams=seams, ready=ready))
        await up.wait()
        assert (await answer(client, all_ok)).status_code == 200
        admin.config_set("maxmemory-policy", "allkeys-lru")
        reply = await answer(client, lambda checks: checks["redis"] != "ok")
        assert reply.status_code == 503
        assert "maxmemory-policy allkeys-lru" in reply.json()["checks"]["redis"]
        admin.config_set("maxmemory-policy", "noeviction")
        await answer(client, all_ok)
        group.cancel_scope.cancel()
    errors = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert [one.message for one in errors] == [
        "Redis was set to drop keys: agents and transitions will be lost"
    ]
