"""The ASGI application that operators and the hub talk to (extra ``[http]``)."""

from ahcollector._extras import missing_extra
from ahcollector._readiness import Check

try:
    from ahcollector.admin._document import openapi_document
    from ahcollector.admin.app import Reload, TenantAlerts, admin_app
except ModuleNotFoundError as error:
    raise missing_extra("ahcollector.admin", "http", error) from error

__all__ = ["Check", "Reload", "TenantAlerts", "admin_app", "openapi_document"]
