"""The texts that are always there: one for an event told at once, one for a digest.

They are rendered in this process because we wrote them; what users write is not accepted here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ahnotify.errors import RenderError
from ahnotify.providers.base import Content
from ahnotify.templates._context import DigestContext, InstantContext, context_values

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400


class BuiltinRenderer:
    """Renders the built-in templates."""

    def __init__(self) -> None:
        loader = jinja2.PackageLoader("ahnotify.templates", "builtin")
        self._text = self._environment(loader, autoescape=False)
        self._html = self._environment(loader, autoescape=True)

    @staticmethod
    def _environment(loader: jinja2.BaseLoader, *, autoescape: bool) -> jinja2.Environment:
        environment = ImmutableSandboxedEnvironment(
            loader=loader,
            autoescape=autoescape,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters["when"] = when
        environment.filters["span"] = span
        return environment

    def render(self, context: InstantContext | DigestContext) -> Content:
        """Subject, text and HTML of `context`.

        Raises:
            RenderError: A template of ours is wrong.
        """
        kind = "instant" if isinstance(context, InstantContext) else "digest"
        values = dict(context_values(context))
        return Content(
            subject=" ".join(self._render(self._text, f"{kind}.subject.j2", values).split()),
            text=self._render(self._text, f"{kind}.txt.j2", values),
            html=self._render(self._html, f"{kind}.html.j2", values),
        )

    @staticmethod
    def _render(environment: jinja2.Environment, name: str, values: dict[str, Any]) -> str:
        try:
            return environment.get_template(name).render(values)
        except jinja2.TemplateError as error:
            raise RenderError(f"the built-in template {name} failed: {error}") from error


def when(value: datetime) -> str:
    """An instant for people: `2026-06-15 10:20:30 UTC`."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(seconds: float) -> str:
    """A length of time for people: `3 minutes`, `2 hours`."""
    for size, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"), (1, "second")):
        count = int(seconds // size)
        if count >= 1:
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    return "less than a second"
