"""The streams of the bus on NATS: made, found, raised, and refused by name and value."""

import anyio
import pytest

from ahcollector.bus.jetstream import BufferSize
from ahcollector.errors import BusError
from ahcollector.nats import NatsClient, NatsConfig

# Where the package is tested alone there is no testkit, and none of these tests runs.
testkit = pytest.importorskip("testkit")

pytestmark = [pytest.mark.anyio, pytest.mark.service]


async def config_of(bus, stream):
    return (await bus._api.ask(f"STREAM.INFO.{stream}"))["config"]


async def made_with(bus, **changes):
    """Make the stream by hand, almost as it must be."""
    config = bus._setup._plans[0].config() | {"num_replicas": 1} | changes
    await bus._api.ask(f"STREAM.CREATE.{bus._names.stream}", config)


async def test_streams_are_made_once_by_whoever_comes_first(nats_buses):
    buses = [nats_buses() for _ in range(4)]
    async with anyio.create_task_group() as tasks:
        for bus in buses:
            tasks.start_soon(bus.check)
    config = await config_of(buses[0], buses[0]._names.stream)
    assert (config["retention"], config["discard"], config["storage"]) == (
        "workqueue",
        "new",
        "file",
    )
    assert config["max_age"] == 0
    assert config["discard_new_per_subject"] is True
    assert config["max_bytes"] == 64 << 20
    assert len(config["subjects"]) == 64
    bucket = await config_of(buses[0], buses[0]._names.bucket)
    assert bucket["max_msgs_per_subject"] == 1
    await buses[0].check()


async def test_limits_that_are_too_low_are_raised_and_none_is_lowered(nats_buses):
    low = BufferSize(bytes_max=1 << 20, batches_max=10, shard_batches_max=5_000)
    bus = nats_buses(size=low)
    await bus.check()
    high = nats_buses(size=BufferSize(bytes_max=2 << 20, batches_max=20, shard_batches_max=10))
    await high.check()
    await bus.check()
    config = await config_of(bus, bus._names.stream)
    assert config["max_bytes"] == 2 << 20
    assert config["max_msgs"] == 20
    assert config["max_msgs_per_subject"] == 5_000


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"max_age": 7_200_000_000_000}, "has max_age 7200000000000, and must have 0"),
        ({"discard": "old", "discard_new_per_subject": False}, "has discard 'old', and must have"),
        ({"discard_new_per_subject": False}, "has discard_new_per_subject False"),
        ({"retention": "limits"}, "has retention 'limits'"),
        ({"storage": "memory"}, "has storage 'memory', and must have 'file': a restart of NATS"),
        ({"no_ack": True}, "answers no publisher"),
    ],
)
async def test_a_stream_that_would_lose_entries_is_refused_by_name_and_value(
    nats_buses, changes, told
):
    bus = nats_buses()
    await made_with(bus, **changes)
    with pytest.raises(BusError, match=told) as error:
        await bus.check()
    assert bus._names.stream in str(error.value)
    assert "delete it" in str(error.value)


async def test_a_stream_of_something_else_is_refused(nats_buses):
    bus = nats_buses()
    await made_with(bus, subjects=[f"{nats_buses.prefix}.other"])
    with pytest.raises(BusError, match=r"does not have the subject .*bus\.s\.0.*another prefix"):
        await bus.check()


async def test_a_buffer_that_nats_has_no_room_for_is_refused(nats_buses):
    bus = nats_buses(size=BufferSize(bytes_max=1 << 50))
    with pytest.raises(BusError, match=r"no room for stream .* of 1125899906842624 bytes"):
        await bus.check()


async def test_entries_that_no_message_may_be_as_large_as_are_refused(nats_buses):
    bus = nats_buses(entry_bytes_max=1_048_000)
    with pytest.raises(BusError, match=r"takes messages of 1048576 bytes.*lower entry_bytes_max"):
        await bus.check()


async def test_a_cluster_that_is_none_is_told(nats_buses):
    with pytest.raises(BusError, match=r"JetStream refuses STREAM\.CREATE"):
        await nats_buses(replicas=3).check()


async def test_a_nats_that_is_not_there_is_told(nats_buses):
    url = f"nats://127.0.0.1:{testkit.free_port()}"
    client = NatsClient(config=NatsConfig(servers=(url,)))
    bus = nats_buses(client=client)
    with pytest.raises(BusError, match=r"NATS at nats://127\.0\.0\.1.*gave no answer to connect"):
        await bus.check()


class SmallDisk(testkit.NatsServer):
    """JetStream with room for 80 MiB: the bucket, and 16 MiB more."""

    def _command(self):
        settings = self.directory / "nats.conf"
        settings.write_text(
            f'jetstream {{ store_dir: "{self.directory / "jetstream"}", max_file_store: 80MiB }}\n'
        )
        return [str(self.executable), "-a", self.host, "-p", str(self.port), "-c", str(settings)]


async def test_what_has_no_room_is_told_whole_and_a_smaller_buffer_then_has_it(
    nats_buses_on, start_service
):
    """The largest is made last: what is asked for in vain is not kept."""
    async with nats_buses_on(start_service(SmallDisk)) as new:
        too_large = new(size=BufferSize(bytes_max=9 << 20), dead_bytes_max=8 << 20)
        with pytest.raises(BusError, match=r"no room for stream .* of 9437184 bytes") as error:
            await too_large.check()
        prefix = new.prefix
        assert (
            f"the bus takes 84934656 bytes of it ({prefix}_bus 9437184, {prefix}_bus_dead 8388608, "
            f"KV_{prefix}_bus 67108864)"
        ) in str(error.value)
        assert await new(size=BufferSize(bytes_max=8 << 20), dead_bytes_max=8 << 20).check() == ()


async def test_a_stream_that_has_more_than_is_set_is_told_with_the_way_to_lower_it(nats_buses):
    """Otherwise who lowers a setting believes that it was done."""
    await nats_buses(size=BufferSize(bytes_max=2 << 20, batches_max=20)).check()
    bus = nats_buses(size=BufferSize(bytes_max=1 << 20, batches_max=20))
    [told] = await bus.check()
    stream = bus._names.stream
    assert f"stream {stream} of NATS has max_bytes 2097152, and 1048576 is set" in told
    assert f"nats stream edit {stream} --max-bytes=1048576" in told
    await bus._api.ask(
        f"STREAM.UPDATE.{stream}", await config_of(bus, stream) | {"max_bytes": 1 << 20}
    )
    assert await bus.check() == ()


async def test_nothing_is_made_beside_a_stream_that_is_refused(nats_buses):
    bus = nats_buses()
    await made_with(bus, max_age=7_200_000_000_000)
    with pytest.raises(BusError, match="has max_age"):
        await bus.check()
    with pytest.raises(BusError, match="stream not found"):
        await config_of(bus, bus._names.bucket)
