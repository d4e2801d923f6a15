"""The control plane over HTTP; needs the extra `web`."""

from ahnotify.api._app import rules_app

__all__ = ["rules_app"]
