"""The development hub's application on a database, without a server around it."""

import httpx

from ah_server.hub import AlertingLists, CompanySettingsTable, EventLog, Identities, hub_app
from ah_server.settings import Secret

TOKEN = "hub-token-canary"


class BareHub:
    """What the application is made of, and `http`, who shows its token."""

    def __init__(self, database, clock):
        self.database = database
        self.identities = Identities(database=database, clock=clock)
        self.event_log = EventLog(database=database, clock=clock)
        self.app = hub_app(
            token=Secret(TOKEN),
            identities=self.identities,
            event_log=self.event_log,
            settings=CompanySettingsTable(database=database),
            lists=AlertingLists(database=database),
        )
        # What the application raises comes out of the call, so that no 500 goes unseen.
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app),
            base_url="http://hub.test",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )

    async def aclose(self):
        await self.http.aclose()
        await self.database.aclose()
