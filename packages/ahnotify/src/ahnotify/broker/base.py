"""The broker: messages between zones.

A *topic* is what a publisher names, a *queue* what a consumer reads; a `Topology` says which queues
take which topic. (On RabbitMQ a topic is an exchange with a routing key.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final, Protocol

import attrs

__all__ = [
    "DEAD_LETTERS",
    "DELIVERY_DIGEST",
    "DELIVERY_INSTANT",
    "INCIDENTS",
    "INCIDENTS_TO_STORE",
    "INCIDENT_EVENTS",
    "RULE_EVENTS",
    "TOPOLOGY",
    "Broker",
    "Consumer",
    "Delivery",
    "Depth",
    "Message",
    "Topology",
]

#: Topic of IncidentEvent; it goes to the two queues below.
INCIDENTS: Final = "incidents"
#: Queue of matching.
INCIDENT_EVENTS: Final = "incident.events"
#: Queue of the incident store.
INCIDENTS_TO_STORE: Final = "incident.store"
#: Topic of RuleChangedEvent; every process that listens hears it, and nobody need listen.
RULE_EVENTS: Final = "rule.events"
#: Topic and queue of instant NotificationMessages.
DELIVERY_INSTANT: Final = "delivery.jobs.instant"
#: Topic and queue of digest NotificationMessages.
DELIVERY_DIGEST: Final = "delivery.jobs.digest"
#: Queue of what nobody could handle, whatever queue it came from.
DEAD_LETTERS: Final = "dead.letters"


@attrs.frozen(kw_only=True)
class Topology:
    """Which queues take which topic; an empty tuple is a topic that may be heard by nobody."""

    routes: Mapping[str, tuple[str, ...]]
    dead_letters: str = DEAD_LETTERS

    @property
    def queues(self) -> frozenset[str]:
        """Every queue."""
        return frozenset(q for queues in self.routes.values() for q in queues) | {self.dead_letters}


TOPOLOGY: Final = Topology(
    routes={
        INCIDENTS: (INCIDENT_EVENTS, INCIDENTS_TO_STORE),
        RULE_EVENTS: (),
        DELIVERY_INSTANT: (DELIVERY_INSTANT,),
        DELIVERY_DIGEST: (DELIVERY_DIGEST,),
    }
)


@attrs.frozen(kw_only=True)
class Message:
    """What is published.

    Attributes:
        topic: Where to.
        body: The bytes, taken as they are.
        message_id: The publisher's name for it, the same when it publishes it again.
        tenant_id: Whose it is; empty when it belongs to no tenant.
        headers: Short texts beside the body.
    """

    topic: str
    body: bytes = attrs.field(repr=False)
    message_id: str
    tenant_id: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Depth:
    """What a queue holds.

    Attributes:
        ready: Messages that a consumer could have now.
        unacked: Messages that a consumer holds.
        delayed: Messages that wait for their time.
        oldest_age_seconds: Age of the oldest ready or unacked message since it was published; 0 if
            none.
    """

    ready: int
    unacked: int
    delayed: int
    oldest_age_seconds: float


class Delivery(Protocol):
    """One message in a consumer's hands, until exactly one of the three methods is called.

    Each of them raises LeaseLostError when the message went back to its queue meanwhile (then
    another consumer may hold it, and the caller must leave it alone), and BrokerUnavailableError or
    DatabaseUnavailableError when the broker did not answer (then the message comes again).
    """

    @property
    def queue(self) -> str:
        """The queue it came from."""
        ...

    @property
    def body(self) -> bytes:
        """The bytes as published."""
        ...

    @property
    def message_id(self) -> str:
        """The publisher's name for it."""
        ...

    @property
    def tenant_id(self) -> str:
        """Whose it is, as the publisher said."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """As published; in the dead-letter queue with `source_queue` and `reason`."""
        ...

    @property
    def delivery_count(self) -> int:
        """1 at the first delivery. Counts what was handed out, not attempts of any zone."""
        ...

    @property
    def published_at(self) -> datetime:
        """When it was first published."""
        ...

    async def ack(self) -> None:
        """It is done; it never comes again."""
        ...

    async def nack(self, *, delay_seconds: float = 0) -> None:
        """It comes again, not before `delay_seconds`."""
        ...

    async def dead_letter(self, reason: str) -> None:
        """Move it to the dead-letter queue with `reason`, in one step: never gone or in both."""
        ...


class Consumer(Protocol):
    """Hands out messages; made by `Broker.consume`."""

    async def receive(self) -> Delivery:
        """The next message; waits for one. A cancelled call loses nothing."""
        ...


class Broker(Protocol):
    """Queues that survive a crash.

    Order: none is promised; usually first in, first out. Durability: when `publish` returned, every
    message is in every queue of its topic and survives kill -9 (and a power loss, where the
    database or broker is set so). Delivery is at least once: a consumer that dies gives back what
    it held, a lost confirmation makes a publisher repeat itself, so readers must not mind a second
    copy; `message_id` is the same in both. Poison: a message handed out more often than the
    broker's limit without an ack goes to the dead-letter queue with the reason `delivery_limit`.

    Errors: UnroutableError for a topic that the topology does not have, BrokerUnavailableError or
    DatabaseUnavailableError when there was no confirmation: then some, all or none may be queued.
    """

    async def publish(self, messages: Sequence[Message], *, delay_seconds: float = 0) -> None:
        """Queue every message, visible after `delay_seconds`; a broker may round them up."""
        ...

    def consume(self, queue: str, *, prefetch_items: int) -> AbstractAsyncContextManager[Consumer]:
        """Read `queue`, holding at most `prefetch_items` messages without ack.

        Leaving the context gives back at once what is still held.
        """
        ...

    async def depth(self, queue: str) -> Depth:
        """What `queue` holds now."""
        ...
