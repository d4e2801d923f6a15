"""Notification rules: where they are stored and how matching holds them."""

from ahnotify.rules._cache import RuleCache, RuleCatalog
from ahnotify.rules._store import RuleStore, StoredRule

__all__ = ["RuleCache", "RuleCatalog", "RuleStore", "StoredRule"]
