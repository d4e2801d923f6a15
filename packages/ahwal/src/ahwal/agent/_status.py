"""The agent's state and figures at one moment."""

from collections.abc import Callable
from enum import StrEnum

from attrs import frozen

from ahwal.sender import SenderStatus


class AgentState(StrEnum):
    """What an agent is doing. While it runs, its delivery state says more.

    `new`: not running yet; it opens its queue. `running`. `identity_mismatch`: the state directory
    belongs to another machine; it sends nothing and waits to be stopped. `agent_revoked`: it sends
    nothing any more and waits to be stopped. `stopped`: `run` has returned; what was queued is on
    disk. `failed`: it ended with an error, which `AgentStatus.error` names.
    """

    NEW = "new"
    RUNNING = "running"
    IDENTITY_MISMATCH = "identity_mismatch"
    AGENT_REVOKED = "agent_revoked"
    STOPPED = "stopped"
    FAILED = "failed"


@frozen(kw_only=True)
class AgentStatus:
    """Figures of one agent.

    Attributes:
        state: What it is doing.
        error: Why, for a state that is not normal or a queue in memory; without secrets. Why the
            last request failed is in `sender.last_error`.
        storage: `disk` or `memory`: where new batches go.
        agent_id: Its identity.
        collector_url: Where it sends to.
        version: Of this library.
        interval_seconds: The collection interval in force.
        uptime_seconds: Since `run` began.
        cycles: Collections that were made.
        missed_cycles: Collections that were left out because the one before took too long.
        sender: The sender's figures; None before it started.
    """

    state: AgentState
    error: str
    storage: str
    agent_id: str
    collector_url: str
    version: str
    interval_seconds: float
    uptime_seconds: float
    cycles: int
    missed_cycles: int
    sender: SenderStatus | None

    def line(self) -> str:
        """Return the one-line form, which begins `delivery=<state> queued=N`."""
        if self.sender is None:
            return f"delivery={self.state} queued=0"
        if self.state is AgentState.RUNNING:
            return self.sender.line()
        return f"delivery={self.state} queued={self.sender.queued_batches}"


class LastKnown:
    """Gives the figures of the moment; in a child made by `fork` those that were given last.

    The child has no part in the agent: its queue is the parent's, and a lock that a thread of the
    parent held stays held. While an agent runs its status file asks every 10 s.

    Args:
        look: Gives the figures of the moment.
        in_child: Whether this is such a child.
    """

    def __init__(self, *, look: Callable[[], AgentStatus], in_child: Callable[[], bool]) -> None:
        self._look = look
        self._in_child = in_child
        self._seen: AgentStatus | None = None

    def __call__(self) -> AgentStatus:
        """Return the figures."""
        seen = self._seen
        if seen is None or not self._in_child():
            seen = self._seen = self._look()
        return seen
