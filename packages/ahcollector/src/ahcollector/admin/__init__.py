"""The ASGI application that operators and the hub talk to (extra ``[http]``)."""

from ahcollector._readiness import Check
from ahcollector.admin._extra import Reload, TenantAlerts, admin_app, openapi_document

__all__ = ["Check", "Reload", "TenantAlerts", "admin_app", "openapi_document"]
