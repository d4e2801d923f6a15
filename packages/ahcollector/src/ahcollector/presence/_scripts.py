"""The Lua scripts of the Redis presence; the files in ``lua`` say what each takes and returns."""

from __future__ import annotations

from functools import cache

import attrs

from ahcollector.redis import Script

__all__ = ["Scripts", "load_scripts"]


@attrs.frozen(kw_only=True)
class Scripts:
    """Each script, with the functions before it that it needs."""

    touch: Script
    ensure: Script
    remove: Script
    scan: Script
    confirm: Script
    grace: Script
    walk: Script
    drain: Script
    release: Script
    list: Script
    swap: Script


@cache
def load_scripts() -> Scripts:
    """Read the scripts, once a process."""
    return Scripts(
        **{name: _script(name, "agent") for name in ("touch", "ensure", "remove", "scan")},
        **{name: _script(name, "agent") for name in ("confirm", "grace", "walk", "list")},
        **{name: _script(name, "agent", "contacts") for name in ("drain", "release")},
        swap=_script("swap"),
    )


def _script(name: str, *before: str) -> Script:
    return Script.load("ahcollector.presence", name, after=before)
