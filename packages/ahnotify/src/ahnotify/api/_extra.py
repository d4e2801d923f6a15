"""The application, or an error that names the extra it needs."""

from __future__ import annotations

from ahnotify._extras import missing_extra

try:
    from ahnotify.api._app import rules_app
except ModuleNotFoundError as error:
    raise missing_extra("the rules API", "web", error) from error

__all__ = ["rules_app"]
