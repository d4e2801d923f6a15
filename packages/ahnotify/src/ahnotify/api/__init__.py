"""The control plane over HTTP; needs the extra `web`."""

from ahnotify._extras import missing_extra

try:
    from ahnotify.api._app import rules_app
except ModuleNotFoundError as error:
    raise missing_extra("the rules API", "web", error) from error

__all__ = ["rules_app"]
