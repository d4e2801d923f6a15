import resource

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from ah_server import connections
from ah_server.connections import fair_share
from ah_server.parts import Supervisor
from ah_server.settings import Address
from ah_server.web_server import WebServer, bind, bound_address

pytestmark = pytest.mark.anyio


async def hello(_request):
    return PlainTextResponse("hello")


async def who(request):
    return PlainTextResponse(f"{request.client.host} {request.url.scheme}")


class Door:
    def __init__(self, connections_max):
        listener = bind(Address("127.0.0.1", 0), "test")
        self.address = bound_address(listener)
        self.released = anyio.Event()
        app = Starlette(routes=[Route("/", hello), Route("/slow", self.slow), Route("/who", who)])
        self.server = WebServer(
            name="door", app=app, listener=listener, connections_max=connections_max
        )
        self.opened = []

    async def slow(self, _request):
        await self.released.wait()
        return PlainTextResponse("at last")

    async def connect(self, data=b""):
        stream = await anyio.connect_tcp(self.address.host, self.address.port)
        self.opened.append(stream)
        if data:
            await stream.send(data)
        return stream

    @property
    def url(self):
        return f"http://{self.address.netloc}"


@pytest.fixture
async def door():
    made = Door(connections_max=8)
    supervisor = Supervisor([made.server])
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        yield made
        made.released.set()
        for stream in made.opened:
            await stream.aclose()
        supervisor.request_stop()


async def is_closed(stream):
    with anyio.fail_after(5):
        try:
            return await stream.receive() == b""
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return True


async def test_a_crowd_of_silent_connections_leaves_room_for_who_speaks(door, caplog):
    first = await door.connect(b"GET / HTTP/1.1\r\n")
    for _ in range(100):
        await door.connect(b"GET / HTTP/1.1\r\n")
    async with httpx.AsyncClient() as client:
        assert (await client.get(door.url + "/")).text == "hello"
    assert await is_closed(first)
    assert len(door.server.room) <= 8
    # 93 were closed for room, and 7 lines said so: at the 1st, 2nd, 4th … 64th.
    assert len([line for line in caplog.records if "door is full" in line.message]) <= 8


async def test_who_is_served_or_was_before_is_closed_last(door):
    async with httpx.AsyncClient() as client:
        await client.get(door.url + "/")  # its connection is idle now, and known
        async with anyio.create_task_group() as group:
            answers = []

            async def ask():
                answers.append((await client.get(door.url + "/slow", timeout=20)).text)

            group.start_soon(ask)
            await anyio.sleep(0.1)
            for _ in range(50):
                await door.connect()
            door.released.set()
    assert answers == ["at last"]


async def test_when_all_are_being_served_the_newcomer_is_refused(door):
    request = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
    busy = [await door.connect(request) for _ in range(8)]
    await anyio.sleep(0.2)
    late = await door.connect()
    assert await is_closed(late)
    door.released.set()
    for stream in busy:
        answer = b""
        with anyio.fail_after(5):
            while b"at last" not in answer:
                answer += await stream.receive()


async def test_headers_that_do_not_end_are_cut_off_also_behind_a_whole_request(door, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    silent = await door.connect()
    slow = await door.connect(b"GET / HTTP/1.1\r\nHost:")
    second = await door.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"hello" in await second.receive()
    await second.send(b"GET / HTTP/1.1\r\nHos")
    for stream in (silent, slow, second):
        while not await is_closed(stream):
            pass
    assert len(door.server.room) == 0


def test_a_share_is_a_part_of_what_the_process_may_open():
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 8 <= fair_share(parts=1, of=16) < fair_share(parts=1, of=2) <= max(16, soft)


async def test_a_client_on_this_machine_cannot_say_that_it_is_another(door):
    async with httpx.AsyncClient(trust_env=False) as client:
        claims = {"X-Forwarded-For": "198.51.100.7", "X-Forwarded-Proto": "https"}
        assert (await client.get(f"{door.url}/who", headers=claims)).text == "127.0.0.1 http"
