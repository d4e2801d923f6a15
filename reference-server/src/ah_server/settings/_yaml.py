"""Reads a settings file: the plain part of YAML, bounded, every key once.

Taken are mappings with text keys, lists, and scalars that are text, numbers, true, false or null;
a date is text. Not taken are other tags, merges, several documents, and aliases of anything but a
single value, because those can make a small file large. Sentences about a file name the line and
never quote what stands there: it may be a secret.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from ah_server.errors import SettingsError
from ah_server.settings._checks import shown_name

_BYTES_MAX = 1 << 20
_DEPTH_MAX = 20
_NUMBER_CHARS_MAX = 100
_TAG = "tag:yaml.org,2002:"
#: What the parser quotes from the file; its own words for parts, as in '<block end>', stay.
_QUOTED = re.compile(r"'(?!<[a-z ]+>')[^']{2,}'|\"[^\"]{2,}\"")


def read_settings_file(path: Path) -> dict[str, Any]:
    """The mapping that the file holds; an empty file holds an empty one.

    Raises:
        SettingsError: it cannot be read, or is not such YAML.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name holds a NUL"
        raise SettingsError(
            [f"the settings file {shown_name(str(path))} cannot be read ({reason})"]
        ) from error
    if len(data) > _BYTES_MAX:
        raise SettingsError([f"the settings file {path} is over {_BYTES_MAX} bytes"])
    try:
        return _parse(data, path)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise SettingsError([f"the settings file {path} is not YAML: {_told(error)}"]) from error


def _parse(data: bytes, path: Path) -> dict[str, Any]:
    loader = _Loader(data)
    try:
        node = loader.get_single_node()
        if node is None or (isinstance(node, yaml.ScalarNode) and _value(loader, node) is None):
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise SettingsError(
                [f"the settings file {path} must hold a mapping of sections, as in 'ingest:'"]
            )
        problems: list[str] = []
        found = _mapping(loader, node, (), problems)
        if problems:
            raise SettingsError([f"{problem} in the settings file {path}" for problem in problems])
        return found
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """The parser with a bound on nesting and on what an alias stands for."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # the library has no types here
        if self._depth >= _DEPTH_MAX:
            raise _fault(f"more than {_DEPTH_MAX} levels stand in each other", event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent) and not isinstance(node, yaml.ScalarNode):
            raise _fault(
                "an alias can stand for a single value only; write the settings out",
                event.start_mark,
            )
        return node


def _fault(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _mapping(
    loader: _Loader, node: yaml.MappingNode, path: tuple[str, ...], problems: list[str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise _fault("a setting's name must be plain text", key_node.start_mark)
        key = str(key_node.value)
        if key in lines:
            dotted = ".".join(shown_name(part) for part in (*path, key))
            problems.append(f"{dotted}: set in line {lines[key]} and again in line {line}")
            continue
        lines[key] = line
        if isinstance(value_node, yaml.MappingNode):
            found[key] = _mapping(loader, value_node, (*path, key), problems)
        else:
            found[key] = _value(loader, value_node)
    return found


def _value(loader: _Loader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return _scalar(loader, node)
    if isinstance(node, yaml.SequenceNode):
        # Of what no list of a setting holds, only the kind matters for the sentence about it.
        return [
            _scalar(loader, item)
            if isinstance(item, yaml.ScalarNode)
            else []
            if isinstance(item, yaml.SequenceNode)
            else {}
            for item in node.value
        ]
    return {}


def _scalar(loader: _Loader, node: yaml.ScalarNode) -> Any:
    kind = node.tag.removeprefix(_TAG)
    try:
        if kind in ("str", "timestamp", "value", "merge"):
            return str(node.value)
        if kind == "null":
            return None
        if kind == "bool":
            return loader.construct_yaml_bool(node)
        if kind in ("int", "float") and len(node.value) <= _NUMBER_CHARS_MAX:
            read: Any = loader.construct_yaml_int if kind == "int" else loader.construct_yaml_float
            return read(node)
    except (ValueError, LookupError):
        pass
    raise _fault(
        "a value of an unknown kind, or one that is not of the kind it says"
        if kind not in ("int", "float")
        else f"a number that cannot be read; one has at most {_NUMBER_CHARS_MAX} characters",
        node.start_mark,
    )


def _told(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        told = _QUOTED.sub("…", error.problem or error.context or "it cannot be read")
        mark = error.problem_mark or error.context_mark
        return told if mark is None else f"{told}, in line {mark.line + 1}"
    if isinstance(error, yaml.YAMLError):
        return " ".join(str(error).split())[:200]
    return "it holds a character or an escape that cannot be"
