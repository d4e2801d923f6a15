"""Per-company settings as the hub serves them to collectors."""

from ahwire.hub import CompanySettings
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from ah_server.hub._tables import settings


class CompanySettingsTable:
    """Reads and replaces the settings of companies; a company without any has the defaults."""

    def __init__(self, *, engine: AsyncEngine) -> None:
        self._engine = engine

    async def get(self, company_id: str) -> CompanySettings:
        """The settings in force."""
        query = select(settings.c.body).where(settings.c.company_id == company_id)
        async with self._engine.begin() as connection:
            body = await connection.scalar(query)
        return CompanySettings() if body is None else CompanySettings.from_json(body.encode())

    async def put(self, company_id: str, value: CompanySettings) -> None:
        """Replaces the settings of a company."""
        body = value.to_json().decode()
        mine = settings.c.company_id == company_id
        async with self._engine.begin() as connection:
            changed = await connection.execute(update(settings).where(mine).values(body=body))
            if changed.rowcount == 0:
                await connection.execute(insert(settings).values(company_id=company_id, body=body))
