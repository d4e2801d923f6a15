"""Answers of the collector, and of whoever stands in its place, as values."""

from collections.abc import Mapping
from typing import TypeVar

from attrs import field, frozen
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from ahwal.transport._token import Secret
from ahwal.transport.base import ConfigReply, Reply
from ahwire import limits
from ahwire.agent_pb2 import AgentConfig, ErrorBody, MetricsAck

M = TypeVar("M", bound=Message)
_CODE_CHARS_MAX = 64


@frozen(kw_only=True)
class Answer:
    """One HTTP answer, read to its end.

    Attributes:
        status: HTTP status.
        headers: Names in lower case.
        body: At most 1 MiB; kept out of the repr, because it may hold a token.
        retry_after_seconds: 0 to 3,600; None when the server did not say.
        request_id: The id that was sent with the request.
        secret: What the request carried and no log line may show, even if the answer repeats it.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    retry_after_seconds: float | None
    request_id: str
    secret: Secret | None = None

    def message(self, kind: type[M]) -> M | None:
        """Return the body as a protobuf message, by its Content-Type; None when it is not one."""
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            return None
        content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if content_type in ("application/x-protobuf", "application/protobuf"):
                return kind.FromString(self.body)
            if content_type == "application/json":
                return json_format.Parse(self.body, kind(), ignore_unknown_fields=True)
        except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError):
            return None
        return None

    @property
    def error(self) -> tuple[str | None, str]:
        """The protocol's error code and what the server says, both cut to a safe length."""
        body = self.message(ErrorBody) if self.status >= 400 and self.status != 422 else None
        code = self.headers.get("x-ah-code") or (body.code if body is not None else "")
        text = "" if body is None else self._masked(body.message)
        code = self._masked(code)[:_CODE_CHARS_MAX]
        return code or None, printable(text[: limits.MAX_ERROR_MESSAGE_CHARS])

    def _masked(self, text: str) -> str:
        return text if self.secret is None else self.secret.masked_in(text)


def metrics_reply(answer: Answer) -> Reply:
    """Read the answer to `POST /metrics`."""
    code, message = answer.error
    return Reply(
        status=answer.status,
        code=code,
        message=message,
        ack=answer.message(MetricsAck) if answer.status in (200, 202, 422) else None,
        retry_after_seconds=answer.retry_after_seconds,
        request_id=answer.request_id,
    )


def config_reply(answer: Answer, kind: type[AgentConfig]) -> ConfigReply:
    """Read the answer to `GET /config`; the header's etag stands in when the body has none."""
    config = answer.message(kind) if answer.status == 200 else None
    if config is not None and not config.etag:
        config.etag = answer.headers.get("etag", "").removeprefix("W/").strip('"')
    return ConfigReply(
        status=answer.status,
        code=answer.error[0],
        config=config,
        retry_after_seconds=answer.retry_after_seconds,
        request_id=answer.request_id,
    )


def printable(text: str) -> str:
    """Return a text of somebody else's in which nothing can move a terminal's cursor."""
    return "".join(c if c.isprintable() else " " for c in text)
