"""A sending process that kills itself with -9 after the mail server took a mail, before the commit.

Run as: killed_sender.py DATABASE_URL SMTP_PORT NOW
"""

from __future__ import annotations

import os
import signal
import sys

import anyio

from ahnotify import Channel, Database, Sending, SqlBroker
from ahnotify.providers.email import EmailProvider, EmailSettings
from ahnotify.testing import FakeClock


class KilledAfterTheCall(EmailProvider):
    async def send(self, message, contact, settings):
        await super().send(message, contact, settings)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


async def main(url: str, port: int, now: float) -> None:
    clock = FakeClock(now)
    database = Database.open(url)
    settings = EmailSettings(
        host="127.0.0.1", port=port, tls="plain", sender="alerts@hub.example", local_hostname="hub"
    )
    channel = Channel(provider=KilledAfterTheCall(clock=clock), settings=settings)
    await Sending(
        database=database,
        broker=SqlBroker(database=database, clock=clock),
        channels={"email": channel},
        clock=clock,
    ).run()


anyio.run(main, sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
