"""Who can be told, and who may say so."""

from ahnotify.directory._directory import Directory
from ahnotify.directory._keys import ApiKey, ApiKeys, Principal, Role
from ahnotify.directory._values import Contact, DirectorySnapshot, RecipientKey

__all__ = [
    "ApiKey",
    "ApiKeys",
    "Contact",
    "Directory",
    "DirectorySnapshot",
    "Principal",
    "RecipientKey",
    "Role",
]
