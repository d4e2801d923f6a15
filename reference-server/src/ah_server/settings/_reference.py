"""The settings as lines of a table, for `ah-server settings` and the reference page."""

from collections.abc import Iterator

import attrs

from ah_server.settings._checks import range_text
from ah_server.settings._fields import Secret
from ah_server.settings._model import ServerSettings


@attrs.frozen(kw_only=True)
class SettingLine:
    """One setting: dotted name, default as text, what is allowed, what it means.

    A `*` in the name stands for a name that whoever sets it chooses.
    """

    name: str
    default: str
    allowed: str
    doc: str


def setting_lines() -> tuple[SettingLine, ...]:
    """All settings in the order of the model."""
    return tuple(_lines(ServerSettings, ""))


def _lines(model: type, prefix: str) -> Iterator[SettingLine]:
    for name, field in attrs.fields_dict(model).items():
        if "section" in field.metadata:
            yield from _lines(field.metadata["section"], f"{prefix}{name}.")
            continue
        if "sections" in field.metadata:
            doc = field.metadata["doc"]
            yield SettingLine(name=prefix + name, default="", allowed="a mapping", doc=doc)
            yield from _lines(field.metadata["sections"], f"{prefix}{name}.*.")
            continue
        between, choices = field.metadata["between"], field.metadata["one_of"]
        allowed = ""
        if between is not None:
            allowed = range_text(between)
        elif choices is not None:
            allowed = ", ".join(choices)
        elif isinstance(field.default, bool) or field.type == bool | None:
            allowed = "true, false"
        empty = field.default in (None, "", ()) or isinstance(field.default, Secret)
        default = "" if empty else str(field.default)
        if isinstance(field.default, bool):
            default = default.lower()
        yield SettingLine(
            name=prefix + name, default=default, allowed=allowed, doc=field.metadata["doc"]
        )
