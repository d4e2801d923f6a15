"""`ah-server demo --check`: the main job with a failure in the middle, every step proved."""

import anyio

from ah_server.demo.ledger import Promised, missing_samples, read_ledger
from ah_server.demo.mail_sink import body_text
from ah_server.demo.plan import COMPANY, MAIL_TO, QUICK, DemoFolders
from ah_server.demo.probe import STEP_MS, wait_for
from ah_server.demo.show import first_samples
from ah_server.demo.stage import Stage, stage
from ah_server.demo.voice import Voice
from ah_server.errors import CheckFailedError
from ah_server.wiring import Seams
from ahwire import Event
from ahwire.hub import EventType

_FIRST_SAMPLES_SECONDS = 20
_STEADY_SECONDS = 4
_DOWN_SECONDS = 25
_MAIL_SECONDS = 10
_UP_SECONDS = 15
_WHOLE_SECONDS = 20
_QUIET_SECONDS = 4
_SHOWN_MAX = 5
_DRAWN = ('class="line reactive', 'class="dot reactive')


async def check(
    folders: DemoFolders, voice: Voice, *, seams: Seams | None = None, patience: float = 1.0
) -> None:
    """Plays the check once.

    Args:
        folders: where the state goes; empty at the beginning.
        voice: says what happens.
        seams: parts to play it with, for a test of the check itself.
        patience: multiplies how long an event and its e-mail are waited for.

    Raises:
        CheckFailedError: a step did not hold; it was printed too.
        ServerError: the server could not start, or one of its parts failed.
    """
    try:
        async with stage(folders, pace=QUICK, voice=voice, seams=seams) as made:
            voice.proved("enrolled")
            voice.restart()
            await _play(made, patience)
    except CheckFailedError as error:
        voice.failed(str(error))
        raise


async def _play(made: Stage, patience: float) -> None:
    voice, agent = made.voice, made.agent
    pid = await agent.start()
    voice.step(f"agent is running as process {pid}")
    await first_samples(made, within_seconds=_FIRST_SAMPLES_SECONDS)
    voice.proved("samples queryable")
    await _drawn(made)
    await anyio.sleep(_STEADY_SECONDS)

    await agent.kill()
    promised = read_ledger(agent.files.ledger)
    voice.step(f"agent killed with SIGKILL; its WAL had taken {promised.samples} samples")
    down = await _exactly_one(made, EventType.AGENT_DOWN, within_seconds=_DOWN_SECONDS * patience)
    voice.proved(f"exactly one agent.down at the hub ({down.event_id})")
    await _one_mail(made, within_seconds=_MAIL_SECONDS * patience)
    voice.proved(f"exactly one e-mail, to {MAIL_TO}, with {made.server_id} in it")

    pid = await agent.start()
    voice.step(f"agent restarted over its WAL, as process {pid}")
    up = await _exactly_one(made, EventType.AGENT_UP, within_seconds=_UP_SECONDS)
    voice.proved(f"exactly one agent.up at the hub ({up.event_id})")
    await anyio.sleep(_QUIET_SECONDS)
    final = read_ledger(agent.files.ledger)
    await _nothing_missing(made, final)
    voice.proved(f"no sample missing: {final.samples} promised by the WAL, all are stored")
    await _still_one_of_each(made)
    voice.proved("still one agent.down, one agent.up and one e-mail")
    await _count(made, final)


async def _drawn(made: Stage) -> None:
    path = f"/companies/{COMPANY}/servers/{made.server_id}"
    if made.server_id not in await made.probe.page(path):
        raise CheckFailedError(f"the console's page {path} does not show the server")
    for chart in ("cpu", "memory", "disk"):
        svg = await made.probe.page(f"{path}/charts/{chart}.svg?span=5m")
        if not any(mark in svg for mark in _DRAWN):
            raise CheckFailedError(f"the console draws nothing in the {chart} chart")
    made.voice.proved("CPU, memory and disk are drawn by the console")


async def _exactly_one(made: Stage, kind: EventType, *, within_seconds: float) -> Event:
    async def look() -> list[Event] | None:
        return [event for event in await made.probe.events() if event.type is kind] or None

    found = await wait_for(f"{kind.value} at the hub", look, within_seconds=within_seconds)
    if len(found) != 1:
        raise CheckFailedError(f"{len(found)} {kind.value} at the hub where one was expected")
    return found[0]


async def _one_mail(made: Stage, *, within_seconds: float) -> None:
    async def look() -> int | None:
        return len(made.sink.messages()) or None

    await wait_for("an e-mail in the SMTP sink", look, within_seconds=within_seconds)
    messages = made.sink.messages()
    if len(messages) != 1:
        raise CheckFailedError(f"{len(messages)} e-mails in the SMTP sink where one was expected")
    mail = messages[0]
    if mail["To"] != MAIL_TO:
        raise CheckFailedError(f"the e-mail is to {mail['To']}, not to {MAIL_TO}")
    if made.server_id not in mail["Subject"] or made.server_id not in body_text(mail):
        raise CheckFailedError(f"the e-mail does not name {made.server_id}: {mail['Subject']}")


async def _nothing_missing(made: Stage, promised: Promised) -> None:
    if promised.samples == 0:
        raise CheckFailedError("the ledger is empty: nothing was promised, so nothing is proved")
    if promised.cut_lines > 1:
        raise CheckFailedError(f"{promised.cut_lines} cut lines in the ledger after one kill")
    missing: list[str] = []

    async def look() -> bool | None:
        stored = await made.probe.stored(COMPANY, made.server_id, promised)
        missing[:] = missing_samples(promised, stored, STEP_MS)
        return None if missing else True

    try:
        await wait_for("all samples in the store", look, within_seconds=_WHOLE_SECONDS)
    except CheckFailedError as error:
        shown = "; ".join(missing[:_SHOWN_MAX])
        raise CheckFailedError(f"{len(missing)} gaps in the store: {shown}") from error


async def _still_one_of_each(made: Stage) -> None:
    events = await made.probe.events()
    kinds = [event.type for event in events]
    if sorted(kinds) != [EventType.AGENT_DOWN, EventType.AGENT_UP]:
        raise CheckFailedError(f"the hub has {', '.join(kinds)}; one down and one up were expected")
    if events[0].seq >= events[1].seq:
        raise CheckFailedError("the agent.up does not come after the agent.down by its seq")
    if len(made.sink.messages()) != 1:
        raise CheckFailedError(f"{len(made.sink.messages())} e-mails where one was expected")


async def _count(made: Stage, promised: Promised) -> None:
    presence = await made.assembly.collector.presence.counts()
    made.voice.table(
        "What was counted",
        [
            ("batches the WAL took", str(promised.batches)),
            ("samples the WAL took", str(promised.samples)),
            ("series stored", str(len(await made.assembly.collector.store.series(COMPANY)))),
            ("samples missing", "0"),
            ("agents known", str(presence.agents)),
            ("events at the hub", str(len(await made.probe.events()))),
            ("e-mails delivered", str(len(made.sink.messages()))),
            ("seconds after the set-up", f"{made.voice.elapsed_seconds:.1f}"),
        ],
    )
