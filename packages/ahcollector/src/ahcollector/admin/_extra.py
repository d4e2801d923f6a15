"""The application, or an error that names the extra it needs."""

from __future__ import annotations

from ahcollector._extras import missing_extra

try:
    from ahcollector.admin._document import openapi_document
    from ahcollector.admin.app import Reload, TenantAlerts, admin_app
except ModuleNotFoundError as error:
    raise missing_extra("ahcollector.admin", "http", error) from error

__all__ = ["Reload", "TenantAlerts", "admin_app", "openapi_document"]
