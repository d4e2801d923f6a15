"""Who went away for good, so that what was deleted stays deleted.

`Departures` remembers that a server or a company left, and when; `MemoryDepartures`,
`FileDepartures` and `ahcollector.departures.redis.RedisDepartures` (extra ``[redis]``) keep it. A
`Sieve` tells by it which batches come too late, and a `SparingWriter` keeps those out of a store.
"""

from ahcollector.departures.base import Departure, Departures, Left, ServerKey
from ahcollector.departures.file import FileDepartures
from ahcollector.departures.memory import MemoryDepartures
from ahcollector.departures.sieve import Sieve
from ahcollector.departures.sparing import SparingWriter

__all__ = [
    "Departure",
    "Departures",
    "FileDepartures",
    "Left",
    "MemoryDepartures",
    "ServerKey",
    "Sieve",
    "SparingWriter",
]
