"""The ASGI application that operators and the hub talk to (extra ``[http]``)."""

from ahcollector.admin.app import admin_app

__all__ = ["admin_app"]
