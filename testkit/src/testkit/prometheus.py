"""A private Prometheus server: it scrapes, keeps what it scraped, and writes it to others."""

import json
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from testkit._http import get
from testkit.base import Service
from testkit.install import Program

__all__ = ["PrometheusServer"]


class PrometheusServer(Service):
    """prometheus, with the configuration it is given.

    What it scraped and did not yet write to others survives `kill()` and `stop()`.
    """

    program: ClassVar[Program] = Program(
        name="Prometheus",
        executables=("prometheus",),
        package="prometheus",
    )

    def __init__(
        self,
        *,
        config: Mapping[str, Any] | None = None,
        scrapes_itself: bool = False,
        flags: Sequence[str] = (),
        start_timeout_seconds: float = 60.0,
        stop_timeout_seconds: float = 20.0,
    ) -> None:
        """Take the configuration file as data.

        Args:
            config: The sections of the file (`scrape_configs`, `remote_write` …); none by default.
            scrapes_itself: Adds a job called prometheus, whose target is this server.
            flags: Added to the command line; they come last and win.
            start_timeout_seconds: How long the start may take.
            stop_timeout_seconds: How long an orderly end may take.
        """
        super().__init__(
            start_timeout_seconds=start_timeout_seconds,
            stop_timeout_seconds=stop_timeout_seconds,
        )
        self._config = dict(config or {})
        self._scrapes_itself = scrapes_itself
        self._flags = tuple(flags)

    @property
    def url(self) -> str:
        """`http://127.0.0.1:port`."""
        return f"http://{self.host}:{self.port}"

    @property
    def address(self) -> str:
        """`127.0.0.1:port`, as a scrape target is written."""
        return f"{self.host}:{self.port}"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return what an instant query finds.

        Args:
            expression: In PromQL. A range selector gives every raw sample.

        Returns:
            One entry a series: `metric` has its labels, and `value` or `values` its samples as
            (Unix seconds, text of the value).
        """
        path = f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        found: list[dict[str, Any]] = json.loads(get(self.host, self.port, path))["data"]["result"]
        return found

    def _prepare(self) -> None:
        config = dict(self._config)
        if self._scrapes_itself:
            own = {
                "job_name": "prometheus",
                "static_configs": [{"targets": [self.address]}],
            }
            config["scrape_configs"] = [*config.get("scrape_configs", []), own]
        # JSON is YAML.
        path = self.directory / "prometheus.yml"
        path.write_text(json.dumps(config), encoding="utf-8")

    def _command(self) -> list[str]:
        return [
            str(self.executable),
            f"--config.file={self.directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address={self.address}",
            *self._flags,
        ]

    def _answers(self) -> bool:
        return b"Ready" in get(self.host, self.port, "/-/ready")
