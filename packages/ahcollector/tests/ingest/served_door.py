"""The application of a world behind a real server, for real senders."""

import threading

import pytest

uvicorn = pytest.importorskip("uvicorn")
testkit = pytest.importorskip("testkit")


class Answer:
    """What was answered to one request."""

    def __init__(self):
        self.status, self.headers, self.content = 0, {}, b""

    @property
    def code(self):
        return self.headers.get(b"x-ah-code", b"").decode()


class ServedDoor:
    """A world's application behind uvicorn, with a note of every answer.

    Args:
        world: Whose application.
        path: The route that `url` leads to.
    """

    def __init__(self, world, path):
        self.world = world
        self.answers = []
        self._path = path
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app,
                host="127.0.0.1",
                port=0,
                log_level="warning",
                lifespan="off",
                interface="asgi3",
            )
        )
        self._thread = threading.Thread(target=self._server.run)

    async def _app(self, scope, receive, send):
        answer = Answer()

        async def noting(message):
            if message["type"] == "http.response.start":
                # Noted before a client can have it: one without a body ends here.
                answer.status, answer.headers = message["status"], dict(message["headers"])
                self.answers.append(answer)
            else:
                answer.content += message.get("body", b"")
            await send(message)

        await self.world.app(scope, receive, noting)

    def __enter__(self):
        self._thread.start()
        testkit.wait_until(lambda: self._server.started, what="uvicorn to listen")
        (listener,) = self._server.servers[0].sockets
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}{self._path}"
        return self

    def __exit__(self, *error):
        self._server.should_exit = True
        self._thread.join()
