"""Where settings come from: defaults, then the YAML file, then `AH_*`, then flags."""

import difflib
import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ahwal.agent._config import AgentConfig
from ahwal.agent._settings import SETTINGS, Setting, parse
from ahwal.errors import ConfigError

CONFIG_BYTES_MAX = 1 << 20
# These `AH_*` variables are read by the command line itself and are no settings.
OTHER_VARIABLES = frozenset({"AH_CONFIG", "AH_LICENSE"})
_ALIKE = 0.85
_BY_KEY = {setting.key: setting for setting in SETTINGS}


def load_config(
    *,
    file: str | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> AgentConfig:
    """Read all sources; later ones win.

    Args:
        file: YAML file, or None.
        environ: Environment variables; those that are empty count as absent.
        flags: Setting keys and texts from the command line.

    Raises:
        ConfigError: The file cannot be read, a key is unknown, or a value is wrong. Every problem
            is named.
    """
    problems: list[str] = []
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}

    def take(setting: Setting, value: object, source: str) -> None:
        try:
            values[setting.field] = parse(setting, value)
            sources[setting.field] = source
        except ConfigError as error:
            problems.extend(f"{source}: {problem}" for problem in error.problems)

    if file is not None:
        for key, value in _flatten(_read(file)):
            if key not in _BY_KEY:
                problems.append(f"{file}: {_unknown(key)}")
            elif value is not None:
                take(_BY_KEY[key], value, file)
    for setting in SETTINGS:
        text = (environ or {}).get(setting.variable, "")
        if text:
            take(setting, text, setting.variable)
    problems.extend(_misspelt(environ or {}))
    for key, text in (flags or {}).items():
        take(_BY_KEY[key], text, _BY_KEY[key].flag)
    try:
        config = AgentConfig(**values)
    except ConfigError as error:
        named = (_with_source(problem, sources) for problem in error.problems)
        raise ConfigError(*problems, *named) from None
    if problems:
        raise ConfigError(*problems)
    return config


def _with_source(problem: str, sources: Mapping[str, str]) -> str:
    """Say before a problem, which begins with its setting, where the value came from."""
    for setting in SETTINGS:
        begins = re.match(rf"{re.escape(setting.key)}\b(?!\.)", problem)
        if begins and setting.field in sources:
            return f"{sources[setting.field]}: {problem}"
    return problem


def _read(file: str) -> object:
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise ConfigError(
            f"{file}: reading YAML needs PyYAML; install ahwal[cli], or use AH_* variables"
        ) from error
    try:
        with Path(file).open("rb") as stream:
            data = stream.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read ({error.strerror}); check path and rights"
        ) from error
    if len(data) > CONFIG_BYTES_MAX:
        raise ConfigError(f"{file}: over {CONFIG_BYTES_MAX} bytes; this is no configuration")
    try:
        return yaml.safe_load(data) or {}
    except Exception as error:  # noqa: BLE001 - see below
        # What claims to be a date, a number or a truth value and is none makes the library fail
        # with whatever its own code raises then.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        # The error's own text may quote the file, which may hold a secret.
        raise ConfigError(f"{file}: is not valid YAML{where}; correct it") from None


def _flatten(document: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    if not isinstance(document, dict):
        raise ConfigError("the configuration must be a list of `setting: value` lines")
    for name, value in document.items():
        key = f"{prefix}{name}" if isinstance(name, str) else f"{prefix}{type(name).__name__}"
        section = any(known.startswith(f"{key}.") for known in _BY_KEY)
        if section and isinstance(value, dict):
            yield from _flatten(value, f"{key}.")
        else:
            yield key, value


def _misspelt(environ: Mapping[str, str]) -> Iterator[str]:
    """Name variables that look like one of ours; others may begin with `AH_` for their own sake."""
    known = {setting.variable for setting in SETTINGS} | OTHER_VARIABLES
    for name in sorted(environ):
        if name.startswith("AH_") and name not in known:
            close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=_ALIKE)
            if close:
                yield f"{name} is not a setting; did you mean {close[0]}?"


def _unknown(key: str) -> str:
    close = difflib.get_close_matches(key, _BY_KEY, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(_BY_KEY))}"
    return f"{key[:80]} is not a setting; {hint}"
