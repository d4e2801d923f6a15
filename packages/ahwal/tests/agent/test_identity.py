"""Credentials on disk, and enrolment."""

import stat

import anyio
import pytest

from ahwal import (
    AgentConfig,
    AlreadyEnrolledError,
    ConfigError,
    CredentialsError,
    EnrolRefusedError,
    EnrolTemporaryError,
    NotEnrolledError,
    enroll,
)
from ahwal.agent import CredentialStore
from ahwal.agent._machine import make_machine_id
from ahwal.testing import ScriptedAnswer, protobuf, refuse
from ahwire.agent_pb2 import EnrollRequest, EnrollResponse


def test_credentials_survive_a_round_trip_with_owner_only_rights(tmp_path, identity):
    state_dir = tmp_path / "new" / "state"
    stored = identity(state_dir)
    assert CredentialStore(state_dir=str(state_dir)).load() == stored
    assert stat.S_IMODE((state_dir / "credentials.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(state_dir.stat().st_mode) == 0o700
    assert [path.name for path in state_dir.iterdir()] == ["credentials.json"]
    assert "canary" not in repr(stored)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"agent_id": "a"}', '{"agent_token": "SECRET', "\xff"]
)
def test_damaged_credentials_are_named_and_never_quoted(tmp_path, text):
    (tmp_path / "credentials.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CredentialsError, match="--force") as caught:
        CredentialStore(state_dir=str(tmp_path)).load()
    assert "SECRET" not in str(caught.value)


def test_a_save_that_fails_leaves_the_old_file(tmp_path, identity, monkeypatch):
    stored = identity(tmp_path)
    store = CredentialStore(state_dir=str(tmp_path))
    (tmp_path / "credentials.json.tmp").mkdir()
    with pytest.raises(CredentialsError):
        store.save(stored)
    assert store.load() == stored


@pytest.mark.anyio
async def test_enrolment_stores_an_identity_and_tells_the_collector_who_this_is(
    collector, tmp_path
):
    config = AgentConfig(collector_url=collector.url, state_dir=tmp_path, labels={"site": "x"})
    credentials = await enroll(config, " LICENSE-1 \n")
    assert CredentialStore(state_dir=str(tmp_path)).load().agent_id == credentials.agent_id
    request = EnrollRequest.FromString(collector.requests("/enroll")[0].plain)
    assert request.license == "LICENSE-1"
    assert request.machine_id == make_machine_id(str(tmp_path))
    assert request.hostname
    assert dict(request.labels) == {"site": "x"}


@pytest.mark.anyio
async def test_a_second_enrolment_needs_force(collector, tmp_path, identity):
    identity(tmp_path)
    config = AgentConfig(collector_url=collector.url, state_dir=tmp_path)
    with pytest.raises(AlreadyEnrolledError):
        await enroll(config, "L")
    assert collector.requests() == []
    await enroll(config, "L", force=True)
    assert CredentialStore(state_dir=str(tmp_path)).load().agent_id != "agent-1"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refuse(401, "license_invalid"), EnrolRefusedError),
        (refuse(409, "already_enrolled"), EnrolRefusedError),
        (refuse(409, "token_used"), EnrolRefusedError),
        (refuse(422, "binding_failed"), EnrolRefusedError),
        (refuse(426, "upgrade_required"), EnrolRefusedError),
        (refuse(429, "rate_limited", retry_after="60"), EnrolTemporaryError),
        (refuse(503, "unavailable", retry_after="30"), EnrolTemporaryError),
        (refuse(401), EnrolTemporaryError),
        (refuse(403, message="<html>"), EnrolTemporaryError),
        (ScriptedAnswer(status=200, body=b"<html>log in"), EnrolTemporaryError),
        (ScriptedAnswer(reset=True), EnrolTemporaryError),
        (protobuf(EnrollResponse(agent_id="a").SerializeToString()), EnrolTemporaryError),
        (
            protobuf(
                EnrollResponse(
                    agent_id="a/b", company_id="c", server_id="s", agent_token="t"
                ).SerializeToString()
            ),
            EnrolTemporaryError,
        ),
        (
            protobuf(
                EnrollResponse(
                    agent_id="a", company_id="c", server_id="s", agent_token="t\nu"
                ).SerializeToString()
            ),
            EnrolTemporaryError,
        ),
    ],
)
async def test_every_other_answer_says_whether_trying_again_helps_and_stores_nothing(
    collector, tmp_path, answer, error
):
    collector.script(answer, path="/enroll")
    config = AgentConfig(collector_url=collector.url, state_dir=tmp_path)
    with pytest.raises(error) as caught:
        await enroll(config, "SECRET-LICENSE")
    assert "SECRET-LICENSE" not in str(caught.value)
    if isinstance(caught.value, EnrolTemporaryError) and caught.value.code:
        assert caught.value.retry_after_seconds in (30, 60)
    with pytest.raises(NotEnrolledError):
        CredentialStore(state_dir=str(tmp_path)).load()


def test_without_an_address_or_a_license_enrolment_says_what_is_missing(tmp_path):
    with pytest.raises(ConfigError, match="collector_url"):
        anyio.run(enroll, AgentConfig(state_dir=tmp_path), "L")
    config = AgentConfig(collector_url="http://127.0.0.1:1", state_dir=tmp_path)
    with pytest.raises(ConfigError, match="license"):
        anyio.run(enroll, config, "  ")
