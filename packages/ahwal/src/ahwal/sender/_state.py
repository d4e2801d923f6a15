"""The delivery state machine, without any I/O.

Law of this file: what the agent may do next follows from this table and from nothing else. Time is
a monotonic number that the caller passes in; chance comes from the backoff that it was given.

```
state          signal        next state
ok, backoff    ACCEPTED      ok              backoff and upgrade flag are reset
ok, backoff    FAILED        backoff         next attempt = now + backoff
ok, backoff    UNAUTHORIZED  unauthorized    next probe = now + probe interval
unauthorized   PROBE_PASSED  ok
unauthorized   FAILED        unauthorized    the probe failed; next probe = now + probe interval
any            REVOKED       agent_revoked   final: nothing leads out of it
```
"""

from collections.abc import Mapping
from enum import Enum, StrEnum

from ahwire import Backoff

PROBE_INTERVAL_SECONDS = 600.0


class DeliveryState(StrEnum):
    """What the sender is doing; the text is what travels in `AgentStats.delivery_state`.

    `ok`: the last request was acknowledged, or none was made yet. `backoff`: the collector cannot
    be reached or asked to wait; batches are kept and tried again. `unauthorized`: the token is not
    accepted; batches are kept, and the collector is probed every 10 minutes. `agent_revoked`:
    nothing is ever sent again by this process; batches are kept.
    """

    OK = "ok"
    BACKOFF = "backoff"
    UNAUTHORIZED = "unauthorized"
    AGENT_REVOKED = "agent_revoked"


class Signal(Enum):
    """What an answer means for the state."""

    ACCEPTED = "accepted"
    FAILED = "failed"
    UNAUTHORIZED = "unauthorized"
    PROBE_PASSED = "probe_passed"
    REVOKED = "revoked"


_S, _G = DeliveryState, Signal
TRANSITIONS: Mapping[tuple[DeliveryState, Signal], DeliveryState] = {
    (_S.OK, _G.ACCEPTED): _S.OK,
    (_S.OK, _G.FAILED): _S.BACKOFF,
    (_S.OK, _G.UNAUTHORIZED): _S.UNAUTHORIZED,
    (_S.OK, _G.REVOKED): _S.AGENT_REVOKED,
    (_S.BACKOFF, _G.ACCEPTED): _S.OK,
    (_S.BACKOFF, _G.FAILED): _S.BACKOFF,
    (_S.BACKOFF, _G.UNAUTHORIZED): _S.UNAUTHORIZED,
    (_S.BACKOFF, _G.REVOKED): _S.AGENT_REVOKED,
    (_S.UNAUTHORIZED, _G.PROBE_PASSED): _S.OK,
    (_S.UNAUTHORIZED, _G.FAILED): _S.UNAUTHORIZED,
    (_S.UNAUTHORIZED, _G.UNAUTHORIZED): _S.UNAUTHORIZED,
    (_S.UNAUTHORIZED, _G.REVOKED): _S.AGENT_REVOKED,
}


class Delivery:
    """The state, when the next attempt is due, and the flags that go with it.

    Args:
        backoff: The retry schedule; reset by each success.
        probe_interval_seconds: Pause between two probes while unauthorized.
    """

    def __init__(
        self, *, backoff: Backoff, probe_interval_seconds: float = PROBE_INTERVAL_SECONDS
    ) -> None:
        self._backoff = backoff
        self._probe_interval_seconds = probe_interval_seconds
        self._due = 0.0
        self.state = DeliveryState.OK
        self.upgrade_required = False
        self.transitions: dict[DeliveryState, int] = dict.fromkeys(DeliveryState, 0)

    @property
    def revoked(self) -> bool:
        """Whether nothing may ever be sent again by this process."""
        return self.state is DeliveryState.AGENT_REVOKED

    def due_in(self, now: float) -> float | None:
        """Return the seconds until a request may be made, 0 when at once, None when never."""
        if self.revoked:
            return None
        if self.state is DeliveryState.OK:
            return 0.0
        return max(0.0, self._due - now)

    def may_send(self, now: float) -> bool:
        """Whether a batch may be posted at `now`."""
        sending = self.state in (DeliveryState.OK, DeliveryState.BACKOFF)
        return sending and self.due_in(now) == 0.0

    def may_probe(self, now: float) -> bool:
        """Whether the configuration should be asked for, to see if the token works again."""
        return self.state is DeliveryState.UNAUTHORIZED and self.due_in(now) == 0.0

    def signal(
        self, signal: Signal, *, now: float, retry_after_seconds: float | None = None
    ) -> None:
        """Move along the table. A pair that is not in it changes nothing.

        Args:
            signal: What happened.
            now: Monotonic seconds.
            retry_after_seconds: What the server asked for, used by `FAILED` only.
        """
        following = TRANSITIONS.get((self.state, signal))
        if following is None:
            return
        if following is not self.state:
            self.transitions[following] += 1
        self.state = following
        match following:
            case DeliveryState.OK:
                self._backoff.reset()
                self._due = 0.0
                if signal is Signal.ACCEPTED:
                    self.upgrade_required = False
            case DeliveryState.BACKOFF:
                self._due = now + self._backoff.next(retry_after_seconds)
            case DeliveryState.UNAUTHORIZED:
                self._due = now + max(self._probe_interval_seconds, retry_after_seconds or 0.0)
            case DeliveryState.AGENT_REVOKED:
                self._due = 0.0
