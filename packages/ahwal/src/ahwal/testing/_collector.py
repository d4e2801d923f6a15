"""A collector that answers what a test tells it, over real HTTP on a loopback port."""

import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from attrs import field, frozen

from ahwire.agent_pb2 import (
    AgentConfig,
    EnrollRequest,
    EnrollResponse,
    ErrorBody,
    MetricsAck,
    MetricsBatch,
    RenewResponse,
)
from ahwire.batch import count_points
from ahwire.codec import decompress

_PROTOBUF = "application/x-protobuf"
_API = "/agent/v1"
_PLAIN_BYTES_MAX = 64 << 20


@frozen(kw_only=True)
class RecordedRequest:
    """A request as it came.

    Attributes:
        method: Such as POST.
        path: Below `/agent/v1`, such as `/metrics`.
        headers: Names in lower case.
        body: As sent, still compressed.
        at: Monotonic seconds of its arrival.
        received_at: The collector's wall clock then, Unix seconds.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float
    received_at: float

    @property
    def plain(self) -> bytes:
        """The body, decompressed."""
        return decompress(self.body, self.headers.get("content-encoding"), _PLAIN_BYTES_MAX)

    @property
    def batch(self) -> MetricsBatch:
        """The body of a `POST /metrics`."""
        return MetricsBatch.FromString(self.plain)


@frozen(kw_only=True)
class ScriptedAnswer:
    """What to do with one request.

    Attributes:
        status: HTTP status.
        headers: Further headers; a value of None leaves out what would be sent.
        body: Body bytes.
        delay_seconds: Wait before answering.
        cut: Send only half of the body, then close.
        reset: Send nothing and reset the connection.
    """

    status: int = 200
    headers: Mapping[str, str] = field(factory=dict)
    body: bytes = b""
    delay_seconds: float = 0.0
    cut: bool = False
    reset: bool = False


Script = ScriptedAnswer | Callable[[RecordedRequest], ScriptedAnswer]
"""An answer, or what makes one of the request."""


def acknowledge(**fields: object) -> Callable[[RecordedRequest], ScriptedAnswer]:
    """Return a script that accepts the batch.

    Args:
        **fields: Fields of the MetricsAck to set, over the usual ones.
    """

    def answer(request: RecordedRequest) -> ScriptedAnswer:
        batch = request.batch
        ack = MetricsAck(
            server_time_ms=round(request.received_at * 1000),
            ack_seq=batch.seq,
            accepted_points=count_points(batch),
        )
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(ack, name).extend(value)
            else:
                setattr(ack, name, value)
        return protobuf(ack.SerializeToString(), status=202)

    return answer


def refuse(
    status: int,
    code: str | None = None,
    *,
    message: str = "",
    retry_after: str | None = None,
) -> ScriptedAnswer:
    """Return an error answer of the protocol; without a code, one of somebody on the way.

    Args:
        status: HTTP status.
        code: The protocol's error code, such as `unavailable`.
        message: What the answer says, for people.
        retry_after: The header as it is sent: seconds, or an HTTP date.
    """
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    if code is None:
        return ScriptedAnswer(status=status, headers=headers, body=message.encode())
    body = ErrorBody(code=code, message=message).SerializeToString()
    return protobuf(body, status=status, headers={**headers, "X-AH-Code": code})


def protobuf(
    body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> ScriptedAnswer:
    """Return an answer with a protobuf body."""
    return ScriptedAnswer(
        status=status, headers={"Content-Type": _PROTOBUF, **(headers or {})}, body=body
    )


class ScriptedCollector:
    """A real HTTP server in a thread, on a free loopback port; a context manager.

    Without a script it is a well-meaning collector: it acknowledges every batch, enrols every
    license, and has an empty configuration. It never looks at the token.

    Args:
        tls: Serve HTTPS with this context.
        port: 0 takes a free one.
        wall_clock: The collector's clock, Unix seconds.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.wall_clock = wall_clock
        self._lock = threading.Lock()
        self._once: dict[str, deque[Script]] = {}
        self._always: dict[str, Script] = {}
        self._requests: list[RecordedRequest] = []
        self.config = AgentConfig()
        collector = self

        class Handler(_Handler):
            owner = collector

        self._server = _Server(("127.0.0.1", port), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=lambda: self._server.serve_forever(poll_interval=0.02),
            name="scripted collector",
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def script(self, *answers: Script, path: str = "/metrics") -> None:
        """Answer the next requests of a path with these, one each, in order."""
        with self._lock:
            self._once.setdefault(path, deque()).extend(answers)

    def always(self, answer: Script | None, path: str = "/metrics") -> None:
        """Answer every request of a path so, once its script is used up; None: as usual."""
        with self._lock:
            if answer is None:
                self._always.pop(path, None)
            else:
                self._always[path] = answer

    def requests(self, path: str | None = None) -> list[RecordedRequest]:
        """Return what came so far, of one path or of all."""
        with self._lock:
            return [r for r in self._requests if path is None or r.path == path]

    def batches(self) -> list[MetricsBatch]:
        """Return all batches that were posted, accepted or not."""
        return [request.batch for request in self.requests("/metrics")]

    def wait_for(self, count: int, path: str = "/metrics", timeout_seconds: float = 10.0) -> None:
        """Wait until so many requests of a path came, since the start and whatever was answered.

        Raises:
            TimeoutError: They did not.
        """
        end = time.monotonic() + timeout_seconds
        while len(self.requests(path)) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(self.requests(path))} of {count} requests to {path}")
            time.sleep(0.01)

    def answer_to(self, request: RecordedRequest) -> ScriptedAnswer:
        """Record a request and return what to do with it."""
        with self._lock:
            self._requests.append(request)
            waiting = self._once.get(request.path)
            script = waiting.popleft() if waiting else self._always.get(request.path)
        if script is None:
            return self._usual(request)
        return script(request) if callable(script) else script

    def _usual(self, request: RecordedRequest) -> ScriptedAnswer:
        match request.method, request.path:
            case "POST", "/metrics":
                return acknowledge(config_etag=self.config.etag)(request)
            case "GET", "/config":
                if self.config.etag and request.headers.get("if-none-match") == (
                    f'"{self.config.etag}"'
                ):
                    return ScriptedAnswer(status=304)
                headers = {"ETag": f'"{self.config.etag}"'}
                return protobuf(self.config.SerializeToString(), headers=headers)
            case "GET", "/ping":
                return ScriptedAnswer(body=b"ok")
            case "POST", "/enroll":
                machine = EnrollRequest.FromString(request.plain).machine_id
                return protobuf(
                    EnrollResponse(
                        agent_id=f"agent-{machine[:12]}",
                        company_id="company-1",
                        server_id="server-1",
                        agent_token="scripted-agent-token",  # noqa: S106 - of a test server
                        collector_url=self.url,
                    ).SerializeToString()
                )
            case "POST", "/credentials/renew":
                renewed = RenewResponse(agent_token="scripted-token-2")  # noqa: S106 - as above
                return protobuf(renewed.SerializeToString())
            case "POST", "/inventory":
                return ScriptedAnswer(status=202)
        return refuse(404, "not_found")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Stay silent: tests break connections on purpose."""


class _Handler(BaseHTTPRequestHandler):
    owner: ScriptedCollector
    protocol_version = "HTTP/1.1"
    # Headers and body leave together; without this, Nagle's algorithm would add 40 ms.
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
        """Stay silent."""

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    def do_POST(self) -> None:
        """Answer."""
        self._answer()

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            # The client died in the middle; a server has nothing to process then.
            self.close_connection = True
            return
        answer = self.owner.answer_to(
            RecordedRequest(
                method=self.command,
                path=self.path.removeprefix(_API),
                headers={name.lower(): value for name, value in self.headers.items()},
                body=body,
                at=time.monotonic(),
                received_at=self.owner.wall_clock(),
            )
        )
        if answer.delay_seconds:
            time.sleep(answer.delay_seconds)
        if answer.reset:
            self._reset()
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        request_id = self.headers.get("X-Request-Id")
        if request_id:
            self.send_header("X-Request-Id", request_id)
        if answer.status != 304:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) // 2] if answer.cut else answer.body)
        self.wfile.flush()
        if answer.cut:
            self.close_connection = True

    def _reset(self) -> None:
        # Lingering for 0 seconds turns the close into a reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
