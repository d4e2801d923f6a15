"""Reads settings: defaults, then the YAML file, then `AHC_*` from the environment.

A variable's name is `AHC_` and the dotted name in capitals with `_` for `.`: `ingest.listen` is
`AHC_INGEST_LISTEN`. A secret can also be read from a file that `AHC_<NAME>_FILE`, or the key
`<name>_file` in YAML, names. A name that no setting has is a problem in both. All problems are
collected, so that one run shows them all.
"""

import difflib
import os
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import attrs

from ah_server.errors import SettingsError
from ah_server.settings._checks import shown, shown_name
from ah_server.settings._model import Address, MailSettings, Secret, ServerSettings
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
    problems = reader.problems or _contradictions(settings)
    if problems:
        raise SettingsError(problems)
    return typing.cast("ServerSettings", settings)


class _Reader:
    """Walks the model beside the data and collects what is wrong."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._variables = {_CONFIG_VARIABLE}
        self.problems: list[str] = []

    def section(self, model: type, data: Any, path: tuple[str, ...]) -> Any:
        if data is None:
            data = {}
        if not isinstance(data, Mapping):
            # What stands there is not shown: under admin or hub it may be a token.
            self.problems.append(f"{'.'.join(path)}: expected a mapping of settings below it")
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
            converted = _convert(kind, value)
            _check(field, converted)
        except ValueError as error:
            told = f"{dotted}: {shown(value)} cannot be used: {error}"
            self.problems.append(told if source is None else f"{told} (from {variable})")
            return field.default
        return converted

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
            return default
        return Secret(value)


def _secret_in(file: Any) -> str:
    try:
        path: Path = _convert(Path, file)
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


def _convert(kind: Any, value: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(member for member in typing.get_args(kind) if member is not type(None))
    if kind is Path:
        return _path(value)
    if kind in (Address, str):
        if not isinstance(value, str):
            raise ValueError(
                "expected text; put it in quotes"
                if kind is str
                else "expected host:port, as in 127.0.0.1:8420"
            )
        if not value.isprintable():
            raise ValueError("expected text in one line without control characters")
        return value if kind is str else Address.parse(value)
    return _number(kind, value)


def _path(value: Any) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a path")
    try:
        # Bytes that are no UTF-8 come from the environment as surrogates, and are a path too.
        controls = any(byte < ord(" ") for byte in os.fsencode(value))
    except UnicodeEncodeError:
        controls = True
    if controls:
        raise ValueError("expected a path without control characters")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError("the user after ~ does not exist; write the path out") from None


def _number(kind: type, value: Any) -> Any:
    expected = "expected a number" if kind is float else "expected a whole number"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(expected)
    if isinstance(value, str) and (not value.isascii() or "_" in value):
        raise ValueError(expected)
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        raise ValueError(expected) from None
    if kind is int and isinstance(value, float) and number != value:
        raise ValueError(expected)
    return number


def _check(field: "attrs.Attribute[Any]", value: Any) -> None:
    between = field.metadata["between"]
    if between is not None and not between[0] <= value <= between[1]:
        raise ValueError(f"expected {between[0]:g} to {between[1]:g}")
    choices = field.metadata["one_of"]
    if choices is not None and value not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}")
    if field.metadata["check"] is not None:
        field.metadata["check"](value)


def _contradictions(settings: ServerSettings) -> list[str]:
    found = []
    if bool(settings.ingest.tls_cert) != bool(settings.ingest.tls_key):
        found.append("ingest.tls_cert: works only together with ingest.tls_key; set both or none")
    if settings.hub.base_url and not settings.hub.token:
        found.append("hub.token: required with hub.base_url; set it, or hub.token_file")
    if not settings.console.listen.is_loopback and not settings.console.password:
        found.append(
            f"console.password: required because console.listen is {settings.console.listen},"
            " which other machines reach; set it, or listen on 127.0.0.1"
        )
    found += _mail_problems(settings.notify.mail)
    if settings.outbox.backoff_min_seconds > settings.outbox.backoff_max_seconds:
        found.append(
            f"outbox.backoff_min_seconds: {settings.outbox.backoff_min_seconds:g} is over"
            f" outbox.backoff_max_seconds ({settings.outbox.backoff_max_seconds:g})"
        )
    return found


def _mail_problems(mail: MailSettings) -> list[str]:
    found = []
    if mail.host and not mail.sender:
        found.append("notify.mail.sender: required with notify.mail.host; set the From address")
    if mail.sender and not _is_sender(mail.sender):
        found.append(
            f"notify.mail.sender: {shown(mail.sender)} cannot be used: expected an e-mail address"
            " in ASCII, as in monitoring@example.com"
        )
    if mail.username and mail.security == "plain":
        found.append(
            "notify.mail.username: never sent unprotected, and notify.mail.security is plain; set"
            " that to starttls or tls, or leave the username empty"
        )
    return found


def _is_sender(text: str) -> bool:
    # The e-mail provider decides, so that what is taken here is taken there. Imported only when
    # there is something to ask: it brings the SMTP library with it.
    from ahnotify.errors import ConfigurationError  # noqa: PLC0415  # see above
    from ahnotify.providers.email import EmailSettings  # noqa: PLC0415  # see above

    try:
        EmailSettings(host="localhost", sender=text)
    except ConfigurationError:
        return False
    return True
