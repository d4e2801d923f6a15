"""Real contacts that the hub was not yet told of."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ahcollector.presence.base import SeenAgent, SeenLease

__all__ = ["Contacts"]


class Contacts:
    """The newest contact of each agent since the hub was told, and the leases that are out."""

    def __init__(self, contacts: Iterable[tuple[str, float]] = ()) -> None:
        self._unreported = dict(contacts)
        self._leases: dict[int, SeenLease] = {}
        self._lease_id = 0

    def heard(self, agent_id: str, now: float) -> None:
        """Note a contact."""
        self._unreported[agent_id] = now

    def forget(self, agent_id: str) -> None:
        """Drop a removed agent's contact."""
        self._unreported.pop(agent_id, None)

    def drain(self, limit: int) -> SeenLease:
        """Lease the oldest `limit` contacts."""
        ids = [agent_id for agent_id, _ in zip(self._unreported, range(limit), strict=False)]
        self._lease_id += 1
        lease = SeenLease(
            lease_id=self._lease_id,
            seen=tuple(
                SeenAgent(agent_id=agent_id, last_seen=self._unreported.pop(agent_id))
                for agent_id in ids
            ),
        )
        if lease.seen:
            self._leases[lease.lease_id] = lease
        return lease

    def confirm(self, lease: SeenLease) -> None:
        """Forget leased contacts."""
        self._leases.pop(lease.lease_id, None)

    def release(self, lease: SeenLease, newest: Callable[[str], float | None]) -> None:
        """Take leased contacts back behind those that came meanwhile.

        What is told of them is the `newest` contact; None: the agent is gone, or is another one
        that was not heard yet.
        """
        held = self._leases.pop(lease.lease_id, None)
        for seen in held.seen if held is not None else ():
            last_seen = newest(seen.agent_id)
            if last_seen is not None:
                self._unreported.setdefault(seen.agent_id, last_seen)
