"""The control plane over HTTP; needs the extra `web`."""

from ahnotify.api._extra import rules_app

__all__ = ["rules_app"]
