"""The texts that are always there: one for an event told at once, one for a digest.

They are rendered in this process because we wrote them; what users write is not accepted here.
"""

from __future__ import annotations

from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ahnotify.errors import RenderError
from ahnotify.providers.base import Content
from ahnotify.templates._context import DigestContext, InstantContext, context_values
from ahnotify.templates._wording import condition, facts, span, when, when_both


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
        environment.filters["when_both"] = when_both
        environment.filters["span"] = span
        environment.filters["condition"] = lambda event: condition(event, event.alert)
        return environment

    def render(self, context: InstantContext | DigestContext) -> Content:
        """Subject, text and HTML of `context`.

        Raises:
            RenderError: A template of ours is wrong.
        """
        kind = "digest"
        values = dict(context_values(context))
        if isinstance(context, InstantContext):
            kind = "instant"
            values["rows"] = facts(context.event, context.rule)
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
