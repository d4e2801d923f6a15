"""Per-company settings as the hub serves them to collectors."""

from sqlalchemy import insert, select, update

from ah_server.hub._database import HubDatabase
from ah_server.hub._tables import settings
from ahwire.hub import CompanySettings


class CompanySettingsTable:
    """Reads and replaces the settings of companies; a company without any has the defaults."""

    def __init__(self, *, database: HubDatabase) -> None:
        self._database = database

    async def get(self, company_id: str) -> CompanySettings:
        """The settings in force."""
        query = select(settings.c.body).where(settings.c.company_id == company_id)
        async with self._database.begin() as connection:
            body = await connection.scalar(query)
        return CompanySettings() if body is None else CompanySettings.from_json(body.encode())

    async def put(self, company_id: str, value: CompanySettings) -> None:
        """Replaces the settings of a company."""
        body = value.to_json().decode()
        mine = settings.c.company_id == company_id
        async with self._database.begin() as connection:
            changed = await connection.execute(update(settings).where(mine).values(body=body))
            if changed.rowcount == 0:
                await connection.execute(insert(settings).values(company_id=company_id, body=body))
