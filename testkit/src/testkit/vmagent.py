"""A private vmagent: it scrapes as Prometheus does and writes what it scraped to others."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from testkit._http import get
from testkit.base import Service
from testkit.install import Program

__all__ = ["VmagentServer"]


class VmagentServer(Service):
    """vmagent, of the package of VictoriaMetrics.

    What it could not write yet is in a queue in its directory, which survives `stop()`; `kill()`
    loses what is in memory.
    """

    program: ClassVar[Program] = Program(
        name="vmagent",
        executables=("vmagent", "vmagent-prod"),
        package="victoria-metrics",
    )

    def __init__(
        self,
        *,
        remote_write_url: str,
        bearer_token: str = "",
        config: Mapping[str, Any] | None = None,
        flags: Sequence[str] = (),
        start_timeout_seconds: float = 30.0,
        stop_timeout_seconds: float = 20.0,
    ) -> None:
        """Take where to write, and what to scrape.

        Args:
            remote_write_url: Where what it scraped goes.
            bearer_token: Shown there; without one none is shown.
            config: The sections of a scrape configuration in Prometheus' form.
            flags: Added to the command line; they come last and win.
            start_timeout_seconds: How long the start may take.
            stop_timeout_seconds: How long an orderly end may take.
        """
        super().__init__(
            start_timeout_seconds=start_timeout_seconds,
            stop_timeout_seconds=stop_timeout_seconds,
        )
        self._remote_write_url = remote_write_url
        self._bearer_token = bearer_token
        self._config = dict(config or {})
        self._flags = tuple(flags)

    @property
    def url(self) -> str:
        """`http://127.0.0.1:port`."""
        return f"http://{self.host}:{self.port}"

    def _prepare(self) -> None:
        (self.directory / "scrape.yml").write_text(json.dumps(self._config), encoding="utf-8")
        token = self.directory / "token"
        token.write_text(self._bearer_token, encoding="ascii")
        token.chmod(0o600)

    def _command(self) -> list[str]:
        shown = [f"-remoteWrite.bearerTokenFile={self.directory / 'token'}"]
        return [
            str(self.executable),
            f"-httpListenAddr={self.host}:{self.port}",
            f"-promscrape.config={self.directory / 'scrape.yml'}",
            f"-remoteWrite.url={self._remote_write_url}",
            f"-remoteWrite.tmpDataPath={self.directory / 'queue'}",
            *(shown if self._bearer_token else []),
            "-memory.allowedBytes=128MB",
            *self._flags,
        ]

    def _answers(self) -> bool:
        return get(self.host, self.port, "/health") == b"OK"
