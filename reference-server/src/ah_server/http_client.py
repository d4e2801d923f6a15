"""A small HTTP client of the server's own doors, for the command line and the demo."""

from types import TracebackType
from typing import Any, Self

import httpx

from ah_server.errors import DependencyError
from ah_server.settings import Secret

_TIMEOUT_SECONDS = 10.0


class DoorClient:
    """Asks one door of a running server; used with `async with`.

    No proxy of the environment is used and no redirect is followed.

    Args:
        name: what it is called in errors, `admin API` say.
        base_url: where it listens.
        token: its bearer token; None: it asks for none.
        hint: what to look at when nobody answers.
    """

    def __init__(
        self, *, name: str, base_url: str, token: Secret | None = None, hint: str = ""
    ) -> None:
        self._name = name
        self._base_url = base_url
        self._hint = hint
        headers = {} if token is None else {"Authorization": f"Bearer {token.reveal()}"}
        self._http = httpx.AsyncClient(
            base_url=base_url, headers=headers, timeout=_TIMEOUT_SECONDS, trust_env=False
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

    async def get_json(self, path: str, **query: Any) -> dict[str, Any]:
        """One JSON object.

        Raises:
            DependencyError: the door cannot be reached or refuses.
        """
        found = (await self._ask("GET", path, params=query)).json()
        assert isinstance(found, dict)
        return found

    async def send_json(
        self,
        method: str,
        path: str,
        body: dict[str, Any],
        *,
        timeout_seconds: float | None = _TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """The answer to a JSON object sent with POST or DELETE.

        Args:
            method: POST or DELETE.
            path: where to.
            body: what is sent.
            timeout_seconds: how long the answer may take; None: however long. The door must be
                reached in the usual time.

        Raises:
            DependencyError: the door cannot be reached or refuses.
        """
        timeout = httpx.Timeout(_TIMEOUT_SECONDS, read=timeout_seconds)
        found = (await self._ask(method, path, json=body, timeout=timeout)).json()
        assert isinstance(found, dict)
        return found

    async def get_text(self, path: str) -> str:
        """One page.

        Raises:
            DependencyError: the door cannot be reached or refuses.
        """
        return (await self._ask("GET", path)).text

    async def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            answer = await self._http.request(method, path, **more)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise DependencyError(
                f"the {self._name} at {self._base_url} cannot be reached ({reason}){self._hint}"
            ) from error
        if answer.status_code != httpx.codes.OK:
            raise DependencyError(
                f"the {self._name} at {self._base_url} answered {answer.status_code} to {path}:"
                f" {answer.text[:200]}"
            )
        return answer
