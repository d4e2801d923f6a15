"""A private single-node VictoriaMetrics."""

from collections.abc import Sequence
from typing import ClassVar

from testkit._http import get
from testkit.base import Service
from testkit.install import Program

__all__ = ["VictoriaMetricsServer"]


class VictoriaMetricsServer(Service):
    """victoria-metrics, set up so that a repeated import is stored once.

    Visible is not durable: after `kill()` the last seconds of imports are lost even when they
    could be read, unless `snapshot()` was called before. `stop()` loses nothing.
    """

    program: ClassVar[Program] = Program(
        name="VictoriaMetrics",
        executables=("victoria-metrics", "victoria-metrics-prod"),
        package="victoria-metrics",
    )

    def __init__(
        self,
        *,
        flags: Sequence[str] = (),
        start_timeout_seconds: float = 30.0,
        stop_timeout_seconds: float = 15.0,
    ) -> None:
        """Add `flags` of your own to the command line; they come last and win."""
        super().__init__(
            start_timeout_seconds=start_timeout_seconds,
            stop_timeout_seconds=stop_timeout_seconds,
        )
        self._flags = tuple(flags)

    @property
    def url(self) -> str:
        """`http://127.0.0.1:port`."""
        return f"http://{self.host}:{self.port}"

    def force_flush(self) -> None:
        """Make everything imported so far visible to queries at once."""
        self._get("/internal/force_flush")

    def snapshot(self) -> None:
        """Write everything imported so far to disk, so that `kill()` cannot lose it."""
        self._get("/snapshot/create")

    def _command(self) -> list[str]:
        return [
            str(self.executable),
            f"-httpListenAddr={self.host}:{self.port}",
            f"-storageDataPath={self.directory / 'data'}",
            "-retentionPeriod=100y",
            "-dedup.minScrapeInterval=1ms",  # a repeated import is one sample
            "-maxLabelsPerTimeseries=64",  # the default cuts labels off without a word
            "-memory.allowedBytes=256MB",
            *self._flags,
        ]

    def _answers(self) -> bool:
        return self._get("/health") == b"OK"

    def _get(self, path: str) -> bytes:
        return get(self.host, self.port, path)
