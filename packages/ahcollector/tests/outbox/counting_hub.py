"""A hub behind a real server that takes events, each once, and counts what it saw."""

import collections
import json
import threading

import pytest

uvicorn = pytest.importorskip("uvicorn")
testkit = pytest.importorskip("testkit")


class CountingHub:
    """`POST …/events` as wire.md has it: idempotent by event_id, an old fence is 412.

    Attributes:
        taken: Events by id, in the order of their arrival.
        told: How often each id came in a request that was taken.
        fences: Fences of the requests that were taken, in order.
        fenced: Fences that were refused.
        fails: Asked for each request that would be taken: None, ``before``: answer 503 and take
            nothing, ``after``: take it and give no proper answer.
        holds: Asked with the fence of a request, which waits while this says yes.
        waiting: Fences of those that wait.
    """

    def __init__(self):
        self.taken = {}
        self.told = collections.Counter()
        self.fences, self.fenced = [], []
        self.fails = lambda: None
        self.holds = lambda fence: False
        self.waiting = []
        self._newest = 0
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app,
                host="127.0.0.1",
                port=0,
                log_level="critical",
                lifespan="off",
                interface="asgi3",
            )
        )
        self._thread = threading.Thread(target=self._server.run)

    async def _app(self, scope, receive, send):
        import asyncio

        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        fence = int(dict(scope["headers"])[b"x-ah-fence"])
        self.waiting.append(fence)
        while self.holds(fence):
            await asyncio.sleep(0.005)
        self.waiting.remove(fence)
        status, answer = self._answer(fence, json.loads(body)["events"])
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def _answer(self, fence, events):
        if fence < self._newest:
            self.fenced.append(fence)
            return 412, {"code": "fenced", "message": "fenced", "newest": self._newest}
        how = self.fails()
        if how == "before":
            return 503, {"code": "unavailable", "message": "not now"}
        self._newest = fence
        self.fences.append(fence)
        for event in events:
            self.told[event["event_id"]] += 1
            self.taken.setdefault(event["event_id"], event)
        if how == "after":
            return 502, {}
        return 200, {"accepted": [event["event_id"] for event in events], "rejected": []}

    def __enter__(self):
        self._thread.start()
        testkit.wait_until(lambda: self._server.started, what="uvicorn to listen")
        (listener,) = self._server.servers[0].sockets
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        return self

    def __exit__(self, *error):
        self.holds = lambda fence: False
        self._server.should_exit = True
        self._thread.join()
