import anyio
import pytest

from ah_server.errors import AddressInUseError, ServiceFailedError
from ah_server.parts import Loop, Supervisor

pytestmark = pytest.mark.anyio


class Recorder:
    def __init__(self):
        self.lines = []

    def part(self, name, stop_seconds=1.0):
        async def body():
            self.lines.append(f"{name} runs")
            try:
                await anyio.sleep_forever()
            finally:
                self.lines.append(f"{name} ends")

        return Loop(name=name, body=body, stop_seconds=stop_seconds)


async def test_parts_start_in_order_and_stop_in_reverse():
    seen = Recorder()
    told = []
    supervisor = Supervisor(
        [seen.part("a"), seen.part("b"), seen.part("c")],
        progress=lambda what, name: told.append((what, name)),
    )
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        supervisor.request_stop()
    assert seen.lines == ["a runs", "b runs", "c runs", "c ends", "b ends", "a ends"]
    assert told == [
        *[("started", name) for name in "abc"],
        *[("stopped", name) for name in "cba"],
    ]


async def test_a_part_that_fails_stops_all_and_its_error_surfaces():
    seen = Recorder()

    async def fails():
        await anyio.sleep(0.01)
        raise ValueError("broken pipe-line")

    supervisor = Supervisor([seen.part("a"), Loop(name="bad", body=fails), seen.part("c")])
    with pytest.raises(ServiceFailedError, match=r"part bad .*ValueError: broken pipe-line"):
        await supervisor.run()
    assert seen.lines[-2:] == ["c ends", "a ends"]


async def test_a_part_that_ends_by_itself_counts_as_failed():
    async def returns():
        await anyio.sleep(0)

    with pytest.raises(ServiceFailedError, match="ended though it should serve"):
        await Supervisor([Loop(name="short", body=returns)]).run()


async def test_a_part_that_cannot_start_stops_those_before_it_and_starts_none_after():
    seen = Recorder()

    class Refuses:
        name = "door"
        stop_seconds = 1.0

        async def run(self, *, task_status):
            raise AddressInUseError("ingest.listen: taken")

        def stop(self):
            return False

    with pytest.raises(AddressInUseError, match="taken"):
        await Supervisor([seen.part("a"), Refuses(), seen.part("c")]).run()
    assert seen.lines == ["a runs", "a ends"]


async def test_a_part_that_hangs_at_its_stop_is_left_behind_after_its_deadline():
    seen = Recorder()

    async def stubborn():
        while True:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(0.3):
                    await anyio.sleep_forever()

    supervisor = Supervisor(
        [seen.part("a"), Loop(name="stubborn", body=stubborn, stop_seconds=0.05)]
    )
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        with anyio.fail_after(3):
            supervisor.request_stop()
    assert seen.lines[-1] == "a ends"
