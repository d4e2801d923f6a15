"""Reads settings: defaults, then the YAML file, then `AHC_*` from the environment.

A variable's name is `AHC_` and the dotted name in capitals with `_` for `.`: `ingest.listen` is
`AHC_INGEST_LISTEN`. A secret can also be read from a file that `AHC_<NAME>_FILE`, or the key
`<name>_file` in YAML, names. All problems are collected, so that one run shows them all.
"""

import difflib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import yaml

from ah_server.errors import SettingsError
from ah_server.settings._model import Address, Secret, ServerSettings

ENVIRONMENT_PREFIX = "AHC_"
_SETTINGS_BYTES_MAX = 1 << 20
_SECRET_BYTES_MAX = 64 << 10


def load_settings(path: Path | None, environment: Mapping[str, str]) -> ServerSettings:
    """Reads the file (None: only defaults) and the environment.

    Raises:
        SettingsError: the file cannot be read, or a value cannot be used; all problems at once.
    """
    return settings_from(_read_yaml(path) if path is not None else {}, environment)


def settings_from(data: Mapping[str, Any], environment: Mapping[str, str]) -> ServerSettings:
    """Builds settings from nested mappings, as YAML gives them, and the environment.

    Raises:
        SettingsError: a value cannot be used; all problems at once.
    """
    reader = _Reader(environment)
    settings = reader.section(ServerSettings, data, ())
    problems = reader.problems or _contradictions(settings)
    if problems:
        raise SettingsError(problems)
    return typing.cast("ServerSettings", settings)


def _read_yaml(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(_SETTINGS_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(
            [f"the settings file {path} cannot be read ({error.strerror})"]
        ) from error
    if len(text) > _SETTINGS_BYTES_MAX:
        raise SettingsError([f"the settings file {path} is over {_SETTINGS_BYTES_MAX} bytes"])
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(
            [f"the settings file {path} is not YAML: {_first_line(error)}"]
        ) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SettingsError(
            [f"the settings file {path} must hold a mapping of sections, as in 'ingest:'"]
        )
    return data


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


class _Reader:
    """Walks the model beside the data and collects what is wrong."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[str] = []

    def section(self, model: type, data: Any, path: tuple[str, ...]) -> Any:
        if data is None:
            data = {}
        if not isinstance(data, Mapping):
            self.problems.append(f"{'.'.join(path)}: {data!r} is not a mapping of settings")
            data = {}
        fields = attrs.fields_dict(model)
        hints = typing.get_type_hints(model)
        self._refuse_unknown(data, fields, path)
        values = {}
        for name, field in fields.items():
            if "section" in field.metadata:
                values[name] = self.section(
                    field.metadata["section"], data.get(name), (*path, name)
                )
            else:
                values[name] = self._leaf(field, hints[name], data, (*path, name))
        return model(**values)

    def _refuse_unknown(
        self, data: Mapping[str, Any], fields: Mapping[str, Any], path: tuple[str, ...]
    ) -> None:
        secrets = {
            f"{name}_file" for name, field in fields.items() if isinstance(field.default, Secret)
        }
        for key in data:
            if key in fields or key in secrets:
                continue
            near = difflib.get_close_matches(str(key), [*fields, *secrets], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            self.problems.append(f"{'.'.join((*path, str(key)))}: there is no such setting{hint}")

    def _leaf(
        self,
        field: "attrs.Attribute[Any]",
        kind: Any,
        data: Mapping[str, Any],
        path: tuple[str, ...],
    ) -> Any:
        dotted = ".".join(path)
        variable = ENVIRONMENT_PREFIX + "_".join(path).upper()
        source = self._environment.get(variable)
        value: Any = data.get(path[-1]) if source is None else source
        if isinstance(field.default, Secret):
            return self._secret(field.default, value, data, path, variable)
        if value is None:
            return field.default
        try:
            converted = _convert(kind, value)
            _check(field, converted)
        except ValueError as error:
            told = f"{dotted}: {value!r} cannot be used: {error}"
            self.problems.append(told if source is None else f"{told} (from {variable})")
            return field.default
        return converted

    def _secret(
        self,
        default: Secret,
        value: Any,
        data: Mapping[str, Any],
        path: tuple[str, ...],
        variable: str,
    ) -> Secret:
        dotted = ".".join(path)
        file = self._environment.get(f"{variable}_FILE") or data.get(f"{path[-1]}_file")
        if value is not None and file:
            self.problems.append(f"{dotted}: set both directly and by file; keep one")
            return default
        if file:
            try:
                with Path(str(file)).open("rb") as opened:
                    value = opened.read(_SECRET_BYTES_MAX).decode()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                self.problems.append(f"{dotted}: the file {file} cannot be read ({reason})")
                return default
            value = value.strip()
        if value is None:
            return default
        # The value itself stays out of the sentence: it is a secret, though a broken one.
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            self.problems.append(f"{dotted}: must be printable ASCII text without line breaks")
            return default
        return Secret(value)


def _convert(kind: Any, value: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(member for member in typing.get_args(kind) if member is not type(None))
    if kind is Path:
        if not isinstance(value, str) or not value:
            raise ValueError("expected a path")
        return Path(value).expanduser()
    if kind is Address:
        if not isinstance(value, str):
            raise ValueError("expected host:port, as in 127.0.0.1:8420")
        return Address.parse(value)
    if kind is str:
        if not isinstance(value, str):
            raise ValueError("expected text")
        return value
    if isinstance(value, bool):
        raise ValueError("expected a number")
    try:
        number = kind(value)
    except (TypeError, ValueError):
        raise ValueError(
            "expected a number" if kind is float else "expected a whole number"
        ) from None
    if kind is int and isinstance(value, float) and number != value:
        raise ValueError("expected a whole number")
    return number


def _check(field: "attrs.Attribute[Any]", value: Any) -> None:
    between = field.metadata["between"]
    if between is not None and not between[0] <= value <= between[1]:
        raise ValueError(f"expected {between[0]:g} to {between[1]:g}")
    choices = field.metadata["one_of"]
    if choices is not None and value not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}")


def _contradictions(settings: ServerSettings) -> list[str]:
    found = []
    if bool(settings.ingest.tls_cert) != bool(settings.ingest.tls_key):
        found.append("ingest.tls_cert: works only together with ingest.tls_key; set both or none")
    if settings.hub.base_url and not settings.hub.token:
        found.append("hub.token: required with hub.base_url; set it, or hub.token_file")
    if settings.hub.base_url and not settings.hub.base_url.startswith(("http://", "https://")):
        found.append(
            f"hub.base_url: {settings.hub.base_url!r} cannot be used: expected http:// or https://"
        )
    if not settings.console.listen.is_loopback and not settings.console.password:
        found.append(
            f"console.password: required because console.listen is {settings.console.listen},"
            " which other machines reach; set it, or listen on 127.0.0.1"
        )
    if settings.notify.mail.host and not settings.notify.mail.sender:
        found.append("notify.mail.sender: required with notify.mail.host; set the From address")
    if settings.outbox.backoff_min_seconds > settings.outbox.backoff_max_seconds:
        found.append(
            f"outbox.backoff_min_seconds: {settings.outbox.backoff_min_seconds:g} is over"
            f" outbox.backoff_max_seconds ({settings.outbox.backoff_max_seconds:g})"
        )
    return found
