"""`ah-server demo`: set up, show where to look, stay up until Ctrl-C."""

from datetime import UTC, datetime
from shlex import quote

import anyio

from ah_server.demo.plan import COMPANY, STEADY, DemoFolders
from ah_server.demo.probe import wait_for
from ah_server.demo.stage import Stage, stage
from ah_server.demo.voice import Voice
from ah_server.errors import CheckFailedError


async def show(folders: DemoFolders, voice: Voice) -> None:
    """Plays the demo until it is cancelled."""
    was_up = False
    try:
        async with stage(folders, pace=STEADY, voice=voice) as made:
            was_up = True
            await _play(made)
    finally:
        if was_up:
            voice.step("all stopped; start again with the same state, or with --reset")


async def _play(made: Stage) -> None:
    voice, folders = made.voice, made.folders
    pid = await made.agent.start()
    voice.step(f"agent is running as process {pid}, {STEADY.interval:g} s between collections")
    await first_samples(made, within_seconds=30)
    voice.step(
        f"try it: kill -9 {pid}, wait {STEADY.down_after:g} s, and an e-mail comes to"
        f" {folders.mail}"
    )
    voice.step(f"commands: AHC_STATE_DIR={quote(str(folders.server))} ah-server hub events list")
    path = f"/companies/{COMPANY}/servers/{made.server_id}"
    voice.last_line(
        f"CPU, memory and disk of this machine: {made.probe.url('console', path)}?span=5m"
        "   (Ctrl-C stops all)"
    )
    await _restart_when_killed(made)


async def first_samples(made: Stage, *, within_seconds: float) -> int:
    """Waits until this run's samples can be asked for; returns how many series the server has.

    Raises:
        CheckFailedError: no sample came; the text has the agent's own words.
    """
    began_ms = round(datetime.now(UTC).timestamp() * 1000) - 1000

    async def look() -> int | None:
        found = await made.probe.series(
            COMPANY,
            "cpu_usage_percent",
            server_id=made.server_id,
            start_ms=began_ms,
            end_ms=began_ms + 120_000,
            step_ms=1000,
        )
        if made.agent.exit_code is not None:
            raise CheckFailedError(
                f"the agent ended with {made.agent.exit_code}: {made.agent.log_tail()}"
            )
        return len(await made.assembly.collector.store.series(COMPANY)) if found else None

    try:
        count = await wait_for("samples of the agent", look, within_seconds=within_seconds)
    except CheckFailedError as error:
        raise CheckFailedError(f"{error}; the agent said: {made.agent.log_tail()}") from error
    made.voice.step(f"samples arrive: {count} series can be asked for")
    return count


async def _restart_when_killed(made: Stage) -> None:
    """Whoever kills the agent sees the mail, and then what a restart over the old WAL brings."""
    while True:
        mails = len(made.sink.messages())
        await made.agent.wait()
        made.voice.step("agent is gone; its silence is noticed in a moment")
        with anyio.move_on_after(STEADY.down_after * 3):
            await _told_of_silence(made, mails)
            await anyio.sleep(STEADY.down_after)
        pid = await made.agent.start()
        made.voice.step(f"agent was started again over its WAL, as process {pid}")


async def _told_of_silence(made: Stage, mails: int) -> None:
    """Returns when a mail behind these tells that the server is silent; others are of alerts."""
    while not any("is silent" in str(mail["Subject"]) for mail in made.sink.messages()[mails:]):
        await made.sink.wait_for(len(made.sink.messages()) + 1)
