"""What is known of the bus, whichever it is."""

import attrs

from ahcollector.bus import Bus, BusDeadLetters
from ahcollector.ingest import Check


@attrs.frozen(kw_only=True)
class Carrier:
    """The bus.

    Attributes:
        ping: whether it can be used; None where it is this process itself, and what it took is
            gone with it.
        found: what its check found, for `ah-server check`.
    """

    bus: Bus
    dead: BusDeadLetters
    ping: Check | None
    found: str
