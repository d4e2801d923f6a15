"""Reads settings: defaults, then the YAML file, then `AHC_*` from the environment.

A variable's name is `AHC_` and the dotted name in capitals with `_` for `.`: `ingest.listen` is
`AHC_INGEST_LISTEN`. A secret can also be read from a file that `AHC_<NAME>_FILE`, or the key
`<name>_file` in YAML, names. Of what is named by whoever sets it (`alerting.companies`) there is
one variable, which holds all of it as JSON and takes the place of what the file says. A name that
no setting has is a problem in both. All problems are collected, so that one run shows them all.
"""

import difflib
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import attrs

from ah_server.errors import SettingsError
from ah_server.settings._checks import range_text, shown, shown_name
from ah_server.settings._contradictions import contradictions
from ah_server.settings._convert import converted, json_mapping
from ah_server.settings._fields import Secret
from ah_server.settings._model import ServerSettings
from ah_server.settings._yaml import read_settings_file

ENVIRONMENT_PREFIX = "AHC_"
_CONFIG_VARIABLE = ENVIRONMENT_PREFIX + "CONFIG"
_SECRET_BYTES_MAX = 64 << 10
_UNKNOWN_NAMES_MAX = 20


def load_settings(path: Path | None, environment: Mapping[str, str]) -> ServerSettings:
    """Reads the file (None: only defaults) and the environment.

    Raises:
        SettingsError: the file cannot be read, or a value cannot be used; all problems at once.
    """
    return settings_from(read_settings_file(path) if path is not None else {}, environment)


def settings_from(data: Mapping[str, Any], environment: Mapping[str, str]) -> ServerSettings:
    """Builds settings from nested mappings, as YAML gives them, and the environment.

    Raises:
        SettingsError: a value cannot be used; all problems at once.
    """
    reader = _Reader(environment)
    settings = reader.section(ServerSettings, data, ())
    reader.refuse_unknown_variables()
    problems = reader.problems + [
        sentence for sentence in contradictions(settings) if not reader.doubts(sentence)
    ]
    if problems:
        raise SettingsError(problems)
    return typing.cast("ServerSettings", settings)


class _Reader:
    """Walks the model beside the data and collects what is wrong."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._variables = {_CONFIG_VARIABLE}
        self.problems: list[str] = []
        # Settings, and with a dot at the end sections, of which nobody knows what was meant.
        self._doubtful: set[str] = set()

    def doubts(self, contradiction: str) -> bool:
        """Whether a contradiction may be none once the other problems are mended."""
        where = contradiction.partition(":")[0]
        # What is the bus and the outbox follows from these, which the sentence may not name.
        follows = where.startswith(("bus.", "worker.", "outbox.")) and any(
            name.startswith(("bus.", "redis.", "nats.", "outbox.")) for name in self._doubtful
        )
        return follows or any(name in contradiction for name in self._doubtful)

    def section(self, model: type, data: Any, path: tuple[str, ...]) -> Any:
        if data is None:
            data = {}
        if not isinstance(data, Mapping):
            # What stands there is not shown: under admin or hub it may be a token.
            self.problems.append(f"{'.'.join(path)}: expected a mapping of settings below it")
            self._doubtful.add("".join(f"{name}." for name in path))
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
            elif "sections" in field.metadata:
                values[name] = self._sections(field, data.get(name), (*path, name))
            else:
                values[name] = self._leaf(field, hints[name], data, (*path, name))
        return model(**values)

    def _sections(
        self, field: "attrs.Attribute[Any]", data: Any, path: tuple[str, ...]
    ) -> Mapping[str, Any]:
        dotted, variable = ".".join(path), ENVIRONMENT_PREFIX + "_".join(path).upper()
        self._variables.add(variable)
        source = self._environment.get(variable)
        # The entries have no variables of their own.
        inner = _Reader({})
        found: dict[str, Any] = {}
        try:
            entries = _entries(data if source is None else json_mapping(source), field)
        except ValueError as error:
            inner.problems.append(f"{dotted}: {error}")
            entries = {}
        for name, entry in entries.items():
            try:
                field.metadata["check_name"](name)
            except ValueError as error:
                inner.problems.append(f"{dotted}.{shown_name(name)}: {error}")
                continue
            found[name] = inner.section(field.metadata["sections"], entry, (*path, name))
        end = "" if source is None else f" (from {variable})"
        self.problems += [f"{problem}{end}" for problem in inner.problems]
        self._doubtful |= inner._doubtful
        return types.MappingProxyType(found)

    def _refuse_unknown(
        self, data: Mapping[str, Any], fields: Mapping[str, Any], path: tuple[str, ...]
    ) -> None:
        secrets = {
            f"{name}_file" for name, field in fields.items() if isinstance(field.default, Secret)
        }
        self._refuse(
            [key for key in data if key not in fields and key not in secrets],
            [*fields, *secrets],
            path,
        )

    def refuse_unknown_variables(self) -> None:
        """Notes every variable with our prefix that no setting read."""
        unknown = [
            name
            for name in self._environment
            if name.startswith(ENVIRONMENT_PREFIX) and name not in self._variables
        ]
        self._refuse(sorted(unknown), self._variables, ())

    def _refuse(self, unknown: list[Any], known: Collection[str], path: tuple[str, ...]) -> None:
        if unknown:
            self._doubtful.add("".join(f"{name}." for name in path))
        for key in unknown[:_UNKNOWN_NAMES_MAX]:
            near = difflib.get_close_matches(str(key)[:80], sorted(known), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            dotted = ".".join((*path, shown_name(key)))
            self.problems.append(f"{dotted}: there is no such setting{hint}")
        if len(unknown) > _UNKNOWN_NAMES_MAX:
            more = len(unknown) - _UNKNOWN_NAMES_MAX
            where = ".".join(path) or "settings"
            self.problems.append(f"{where}: {more} more names that no setting has")

    def _leaf(
        self,
        field: "attrs.Attribute[Any]",
        kind: Any,
        data: Mapping[str, Any],
        path: tuple[str, ...],
    ) -> Any:
        dotted = ".".join(path)
        variable = ENVIRONMENT_PREFIX + "_".join(path).upper()
        self._variables.add(variable)
        source = self._environment.get(variable)
        value: Any = data.get(path[-1]) if source is None else source
        if isinstance(field.default, Secret):
            self._variables.add(f"{variable}_FILE")
            return self._secret(field, value, data, path, variable)
        if value is None:
            return field.default
        try:
            usable = converted(kind, value)
            _check(field, usable)
        except ValueError as error:
            told = f"{dotted}: {shown(value)} cannot be used: {error}"
            self.problems.append(told if source is None else f"{told} (from {variable})")
            self._doubtful.add(dotted)
            return field.default
        return usable

    def _secret(
        self,
        field: "attrs.Attribute[Any]",
        value: Any,
        data: Mapping[str, Any],
        path: tuple[str, ...],
        variable: str,
    ) -> Secret:
        default = typing.cast("Secret", field.default)
        dotted = ".".join(path)
        file = self._environment.get(f"{variable}_FILE") or data.get(f"{path[-1]}_file")
        # The value itself stays out of every sentence: it is a secret, though a broken one.
        try:
            if file and value is not None:
                raise ValueError("set both directly and by file; keep one")
            if file:
                value = _secret_in(file)
            if value is None:
                return default
            if not isinstance(value, str):
                raise ValueError("must be text; put it in quotes")
            if not value.isascii() or not value.isprintable():
                raise ValueError("must be printable ASCII text without line breaks")
            if field.metadata["check"] is not None:
                field.metadata["check"](value)
        except ValueError as error:
            self.problems.append(f"{dotted}: {error}")
            self._doubtful.add(dotted)
            return default
        return Secret(value)


def _entries(data: Any, field: "attrs.Attribute[Any]") -> Mapping[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise ValueError("expected a mapping of names, each with a mapping of settings below it")
    most = field.metadata["entries_max"]
    if len(data) > most:
        raise ValueError(f"{len(data)} of them; expected {most} at most")
    return data


def _secret_in(file: Any) -> str:
    try:
        path: Path = converted(Path, file)
        with path.open("rb") as opened:
            data = opened.read(_SECRET_BYTES_MAX + 1)
        text = data.decode().strip()
    except UnicodeDecodeError:
        raise ValueError(
            f"the file {shown_name(file)} cannot be read (it is not UTF-8 text)"
        ) from None
    except OSError as error:
        raise ValueError(
            f"the file {shown_name(file)} cannot be read ({error.strerror})"
        ) from error
    if len(data) > _SECRET_BYTES_MAX:
        raise ValueError(f"the file {shown_name(file)} is over {_SECRET_BYTES_MAX} bytes")
    if not text:
        raise ValueError(f"the file {shown_name(file)} is empty")
    return text


def _check(field: "attrs.Attribute[Any]", value: Any) -> None:
    between = field.metadata["between"]
    if between is not None and not between[0] <= value <= between[1]:
        raise ValueError(f"expected {range_text(between)}")
    choices = field.metadata["one_of"]
    if choices is not None and value not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}")
    if field.metadata["check"] is not None:
        field.metadata["check"](value)
