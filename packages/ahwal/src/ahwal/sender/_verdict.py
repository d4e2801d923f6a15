"""What follows from an answer: for the batches of the request, the state, and what was learned.

Blocking, because it changes the queues; the sender calls it in a worker thread.
"""

import logging

from ahwal.errors import TransportError
from ahwal.sender._backlog import QUEUE_ERRORS, Backlog
from ahwal.sender._batch import Ceilings
from ahwal.sender._books import Books, DropReason, Key
from ahwal.sender._outage import OutageLog
from ahwal.sender._pace import Pace
from ahwal.sender._plan import READ_ENTRIES_MAX, Planner, Request, ServerTime
from ahwal.sender._state import Delivery, Signal
from ahwal.sender._suspect import Suspicion
from ahwal.transport.base import Reply
from ahwire import Clock, now_ms
from ahwire.codec import GZIP
from ahwire.status import Action

_WARNINGS_MAX = 5
_WARNING_CHARS_MAX = 200
_TOO_MANY_REQUESTS = 429


class Verdicts:
    """Carries out what the status table decided.

    Attributes:
        failures: Requests that failed for a reason that may pass.
        clock_skew_seconds: The server's clock minus ours, at the last acknowledgement.
        last_success_unix_seconds: When that was.
        last_error: The last failure; empty after a success.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        backlog: Backlog,
        books: Books,
        ceilings: Ceilings,
        suspicion: Suspicion,
        server_time: ServerTime,
        pace: Pace,
        delivery: Delivery,
        planner: Planner,
        outage: OutageLog,
        logger: logging.Logger,
    ) -> None:
        self._clock = clock
        self._backlog = backlog
        self._books = books
        self._ceilings = ceilings
        self._suspicion = suspicion
        self._server_time = server_time
        self._pace = pace
        self._delivery = delivery
        self._planner = planner
        self._outage = outage
        self._log = logger
        self._resent: Key | None = None
        self.failures = 0
        self.clock_skew_seconds = 0.0
        self.last_success_unix_seconds: float | None = None
        self.last_error = ""

    def apply(self, action: Action, request: Request, reply: Reply) -> bool:
        """Carry out one row of the status table.

        Returns:
            Whether the tick may go on: true unless the row means a failure.
        """
        try:
            return self._apply(action, request, reply)
        except QUEUE_ERRORS as error:
            # The queue could not take the decision. The batch stays and is sent again, which is
            # safe.
            self._failed(reply, f"the queue refused a change: {error}")
            return False

    def _apply(self, action: Action, request: Request, reply: Reply) -> bool:
        if request.suspect is not None and action is not Action.ACCEPT:
            # The batch behind the suspect fared no better: the path is at fault, not the batch.
            self._suspicion.clear()
        match action:
            case Action.ACCEPT:
                self._accept(request, reply)
            case Action.DROP:
                self._fault(request, reply, self._drop_reason(reply))
            case Action.SPLIT:
                self._split(request, reply)
            case Action.RESEND_AS_GZIP:
                self._resend_as_gzip(request, reply)
            case _:
                self._failure(action, request, reply)
                return False
        return True

    def _failure(self, action: Action, request: Request, reply: Reply) -> None:
        match action:
            case Action.STOP_AND_PROBE:
                self._unauthorized(reply)
            case Action.REVOKE:
                self.revoke(reply.request_id)
            case Action.UPGRADE:
                self._delivery.upgrade_required = True
                self._failed(reply, "the collector no longer speaks this protocol: upgrade")
            case Action.ODD:
                if request.suspect is None:
                    self._suspicion.odd(request.keys[0])
                self._failed(reply, f"{_describe(reply)} is outside the protocol")
            case _:
                if reply.status == _TOO_MANY_REQUESTS:
                    self._pace.limited(self._clock.monotonic())
                self._failed(reply, _describe(reply))

    def no_answer(self, error: TransportError) -> None:
        """Record that no whole answer came."""
        self._back_off(str(error), error.request_id, None)

    def revoke(self, request_id: str) -> None:
        """Stop for good; the data stays."""
        self._log.error(
            "the collector revoked this agent; nothing more is sent, the data is kept",
            extra={"request_id": request_id},
        )
        self.last_error = "agent revoked"
        self._delivery.signal(Signal.REVOKED, now=self._clock.monotonic())

    def _accept(self, request: Request, reply: Reply) -> None:
        ack = reply.ack
        assert ack is not None, "classify accepts only with an acknowledgement"
        now = self._clock.monotonic()
        if ack.server_time_ms > 0:
            self.clock_skew_seconds = (ack.server_time_ms - now_ms(self._clock)) / 1000
            self._server_time.learn(ack.server_time_ms)
        losses = {DropReason.TOO_OLD: request.too_old, DropReason.REFUSED: ack.dropped_points}
        with self._backlog.lock:
            removed: list[Key] = []
            try:
                for key in request.keys:
                    removed.append(self._backlog.remove(key))  # noqa: PERF401 - see below
            finally:
                # What left the queue was delivered, also when the disk then refused the next one.
                self._books.settle(removed, losses)
            if request.suspect is not None:
                self._set_aside(
                    request.suspect, "odd answers to it alone, its successor accepted", reply
                )
        self._suspicion.clear()
        self._resent = None
        self._planner.group_max = min(READ_ENTRIES_MAX, self._planner.group_max * 2)
        self._ceilings.accepted(len(request.body))
        self._pace.accepted(now)
        self._delivery.signal(Signal.ACCEPTED, now=now)
        self._outage.recovered(now)
        self.last_error = ""
        self.last_success_unix_seconds = self._clock.time()
        for warning in ack.warnings[:_WARNINGS_MAX]:
            self._log.warning(
                "the collector warns: %s",
                warning[:_WARNING_CHARS_MAX],
                extra={"seq": ack.ack_seq, "request_id": reply.request_id},
            )
        if ack.dropped_points:
            codes = sorted({fault.code for fault in ack.rejected})
            self._log.warning(
                "the collector refused %d points: %s",
                ack.dropped_points,
                ", ".join(codes),
                extra={"seq": ack.ack_seq, "request_id": reply.request_id},
            )

    def _fault(self, request: Request, reply: Reply, reason: DropReason) -> None:
        """The content is at fault: look for the batch, and drop it when it was alone."""
        if len(request.keys) > 1:
            self._smaller(request, reply)
            return
        self._suspicion.clear()
        self._resent = None
        self.last_error = _describe(reply)
        with self._backlog.lock:
            self._books.drop(self._backlog.remove(request.keys[0]), reason)
        self._log.error(
            "the collector rejected a batch, dropping it: %s",
            _describe(reply),
            extra={
                "seq": request.batch.seq,
                "points": request.points,
                "request_id": reply.request_id,
            },
        )

    def _split(self, request: Request, reply: Reply) -> None:
        if len(request.keys) > 1 or request.points > 1:
            self._ceilings.refused(len(request.body), self._clock.monotonic())
        if len(request.keys) > 1:
            self._smaller(request, reply)
            return
        self._suspicion.clear()
        # Else the halves would be merged again, and refused again.
        self._planner.group_max = 1
        if self._planner.split(request.keys[0], request.batch):
            self._log.info(
                "a batch was too large for the collector, its halves are sent: %s",
                _describe(reply),
                extra={"seq": request.batch.seq, "request_id": reply.request_id},
            )
            return
        if reply.code is None:
            # Someone on the way said it, who may be wrong: the point is kept where it can be found.
            with self._backlog.lock:
                self._set_aside(request.keys[0], "too large for something on the way", reply)
            return
        self._fault(request, reply, DropReason.TOO_LARGE)

    def _smaller(self, request: Request, reply: Reply) -> None:
        """Send fewer batches in one request, until the one at fault is alone."""
        self._planner.group_max = max(1, len(request.keys) // 2)
        self._log.info(
            "the collector did not take %d batches in one request, it gets half of them: %s",
            len(request.keys),
            _describe(reply),
            extra={"seq": request.batch.seq, "request_id": reply.request_id},
        )

    def _resend_as_gzip(self, request: Request, reply: Reply) -> None:
        if len(request.keys) == 1 and self._resent == request.keys[0]:
            self._fault(request, reply, DropReason.UNSUPPORTED_ENCODING)
            return
        self._log.info(
            "the collector does not read the coding %s, the batch is sent once more: %s",
            request.coding,
            _describe(reply),
            extra={"seq": request.batch.seq, "request_id": reply.request_id},
        )
        self._planner.coding = GZIP
        self._planner.group_max = 1
        self._resent = request.keys[0]

    def _unauthorized(self, reply: Reply) -> None:
        self._log.error(
            "the collector does not accept the token; batches are kept, it is asked again later; "
            "enrol again with `ahagent enroll --force`, or stop the other agent that uses this "
            "identity",
            extra={"request_id": reply.request_id},
        )
        self.last_error = _describe(reply)
        self._delivery.signal(
            Signal.UNAUTHORIZED,
            now=self._clock.monotonic(),
            retry_after_seconds=reply.retry_after_seconds,
        )

    def _set_aside(self, key: Key, reason: str, reply: Reply) -> None:
        self._books.drop(self._backlog.set_aside(key), DropReason.QUARANTINED)
        self._log.error(
            "a batch was set aside in quarantine: %s",
            reason,
            extra={"id": key.id, "request_id": reply.request_id},
        )

    def _failed(self, reply: Reply, reason: str) -> None:
        self._back_off(reason, reply.request_id, reply.retry_after_seconds)

    def _back_off(self, reason: str, request_id: str, retry_after_seconds: float | None) -> None:
        now = self._clock.monotonic()
        self.failures += 1
        self.last_error = reason
        self._delivery.signal(Signal.FAILED, now=now, retry_after_seconds=retry_after_seconds)
        self._outage.failed(
            now,
            reason=reason,
            request_id=request_id,
            wait_seconds=self._delivery.due_in(now) or 0.0,
        )

    @staticmethod
    def _drop_reason(reply: Reply) -> DropReason:
        return DropReason.BAD_REQUEST if reply.status == 400 else DropReason.INVALID_SERIES


def _describe(reply: Reply) -> str:
    parts = [f"status {reply.status}", reply.code or "", reply.message]
    return " ".join(part for part in parts if part)
