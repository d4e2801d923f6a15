"""A client of a running server's admin API, for the command line."""

from types import TracebackType
from typing import Any, Self

import httpx

from ah_server.errors import DependencyError
from ah_server.settings import Secret

_TIMEOUT_SECONDS = 10.0


class AdminClient:
    """Asks the admin API; used with `async with`.

    Args:
        base_url: where the API listens.
        token: its bearer token.
    """

    def __init__(self, *, base_url: str, token: Secret) -> None:
        self._base_url = base_url
        self._http = httpx.AsyncClient(
            base_url=base_url,
            headers={"Authorization": f"Bearer {token.reveal()}"},
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """One object of the API.

        Raises:
            DependencyError: the server cannot be reached or refuses.
        """
        try:
            answer = await self._http.get(path, params=query)
        except httpx.HTTPError as error:
            raise DependencyError(
                f"the server's admin API at {self._base_url} cannot be reached ({error});"
                " is it running, and is admin.listen the same as its own?"
            ) from error
        if answer.status_code != httpx.codes.OK:
            raise DependencyError(
                f"the server's admin API answered {answer.status_code} to {path}:"
                f" {answer.text[:200]}"
            )
        found = answer.json()
        assert isinstance(found, dict)
        return found
