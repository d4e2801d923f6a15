"""The demo's stage: server, mail sink and agent, set up on real parts and taken down in order."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from email.message import EmailMessage

import anyio
import attrs

from ah_server._about import host_id
from ah_server.demo.agent_process import AgentFiles, AgentProcess
from ah_server.demo.mail_sink import MailSink
from ah_server.demo.plan import (
    COMPANY,
    MAIL_PORT,
    MAIL_TO,
    NOTIFICATION_RULES,
    RECIPIENT,
    DemoFolders,
    Pace,
    demo_settings,
    free_address,
)
from ah_server.demo.probe import Probe
from ah_server.demo.voice import Voice
from ah_server.errors import StateDirectoryError
from ah_server.logs import configure_logs
from ah_server.parts import Supervisor, one_error
from ah_server.web_server import bind, bound_address
from ah_server.wiring import Assembly, Seams, assembled

_AGENT_STOP_SECONDS = 4.0


@attrs.frozen(kw_only=True)
class Stage:
    """What a scenario plays on."""

    voice: Voice
    folders: DemoFolders
    assembly: Assembly
    sink: MailSink
    agent: AgentProcess
    probe: Probe
    server_id: str


@asynccontextmanager
async def stage(
    folders: DemoFolders, *, pace: Pace, voice: Voice, seams: Seams | None = None
) -> AsyncIterator[Stage]:
    """Starts the server and enrols the agent, which is not running yet; stops all at the end.

    Raises:
        ServerError: something could not start; the text says what and why.
    """
    voice.step(f"state is kept in {folders.root}")
    with one_error():
        async with AsyncExitStack() as stack:
            mail_door = stack.enter_context(bind(free_address(MAIL_PORT), "the mail sink"))
            settings = demo_settings(folders, pace=pace, mail_port=bound_address(mail_door).port)
            configure_logs(settings.log, collector_id="demo")
            assembly = await stack.enter_async_context(assembled(settings, seams=seams))
            sink = MailSink(
                listener=mail_door, folder=folders.mail, on_mail=lambda mail: _tell(voice, mail)
            )
            supervisor = Supervisor((sink, *assembly.parts))
            agent = AgentProcess(
                files=AgentFiles(folder=folders.agent),
                collector_url=f"http://{assembly.addresses['ingest'].netloc}",
                interval_seconds=pace.interval,
            )
            _make_folders(folders)
            group = await stack.enter_async_context(anyio.create_task_group())
            await group.start(supervisor.run)
            probe = await stack.enter_async_context(Probe(assembly))
            try:
                voice.step(f"server is up: {len(assembly.parts)} parts in one process")
                for name, address in sorted(assembly.addresses.items()):
                    voice.step(f"  {name:<8} http://{address.netloc}")
                made = Stage(
                    voice=voice,
                    folders=folders,
                    assembly=assembly,
                    sink=sink,
                    agent=agent,
                    probe=probe,
                    server_id=host_id(),
                )
                await _set_up(made)
                yield made
            finally:
                with anyio.CancelScope(shield=True):
                    if not await agent.stop(_AGENT_STOP_SECONDS):
                        voice.step(
                            "agent did not stop in time and was killed; its WAL keeps the rest"
                        )
                    supervisor.request_stop()


def _make_folders(folders: DemoFolders) -> None:
    try:
        for folder in (folders.agent, folders.mail):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateDirectoryError(
            f"the demo's folder {error.filename} cannot be used ({error.strerror}); begin anew"
            " with --reset, or name another with --state-dir"
        ) from error


async def _set_up(made: Stage) -> None:
    """Who is told what, and the agent's identity; nothing of it is done twice."""
    notify = made.assembly.notify
    await notify.directory.put_tenant(COMPANY)
    await notify.directory.put_recipient(COMPANY, "user", RECIPIENT, name="You")
    known = await notify.directory.list_contacts(COMPANY)
    if not any(contact.address == MAIL_TO for contact in known):
        await notify.directory.put_contact(
            COMPANY, "user", RECIPIENT, "email", MAIL_TO, verified=True
        )
    for rule_id, (event_type, words) in NOTIFICATION_RULES.items():
        rule = {
            "name": rule_id.replace("-", " ").capitalize(),
            "filters": {"event_type": [event_type]},
            "recipients": [{"recipient_type": "user", "recipient_id": RECIPIENT}],
            "channels": ["email"],
        }
        await notify.rules.put(COMPANY, rule_id, rule)
        made.voice.step(f"rule: {words} is told to {MAIL_TO} by e-mail, at once")
    made.agent.write_config()
    left = await made.agent.stop_leftover()
    if left is not None:
        made.voice.step(f"agent of an earlier run, process {left}, was still there and is stopped")
    if made.agent.files.is_enrolled:
        made.voice.step(f"agent is enrolled already, as server {made.server_id} of {COMPANY}")
        return
    assert made.assembly.hub is not None
    text = await made.assembly.hub.identities.new_license(COMPANY, made.server_id, 600)
    made.voice.step("hub made a one-time license")
    await made.agent.enroll(text)
    made.voice.step(f"agent enrolled as server {made.server_id} of company {COMPANY}")


def _tell(voice: Voice, mail: EmailMessage) -> None:
    voice.step(f"e-mail to {mail['To']}: {mail['Subject']}")
