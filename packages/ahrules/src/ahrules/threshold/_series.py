"""What is watched: a metric's name with its labels, and the key that stands for both."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from attrs import field, frozen

from ahrules._arguments import expect

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def _quoted(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        text = text.translate(_ESCAPES)
    return f'"{text}"'


def _written(name: str) -> str:
    # An identifier of ASCII is a letter or `_`, then letters, digits and `_`.
    return name if name.isascii() and name.isidentifier() else _quoted(name)


def series_key(name: str, labels: Mapping[str, str]) -> str:
    r"""Return the text that stands for a series: no two of different name or labels share one.

    It is written as people know it, `ah_disk_used{device="sda",mount="/"}`, labels in the order of
    their names, `name` alone where there are none. A backslash, a quote and the end of a line are
    escaped (`\\`, `\"`, `\n`); a name with other signs than letters, digits and `_` is quoted. So
    every key can be read in one way only. A label with the empty value is a label: `{a=""}` and
    no label have different keys.
    """
    if not labels:
        return _written(name)
    pairs = ",".join([f"{_written(label)}={_quoted(labels[label])}" for label in sorted(labels)])
    return f"{_written(name)}{{{pairs}}}"


def _copied(labels: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(labels))


@frozen(kw_only=True)
class Series:
    """A metric's name and labels. Making one costs some microseconds: keep it beside its source.

    Two are equal when their keys are.

    Attributes:
        name: The metric.
        labels: All labels of the series, without those of the tenant; copied, read-only.
        key: What `series_key` says of the two.
    """

    name: str = field(eq=False)
    labels: Mapping[str, str] = field(eq=False, factory=dict, converter=_copied)
    key: str = field(init=False, repr=False)

    @key.default
    def _key(self) -> str:
        expect("name", self.name, str, "give the metric's name")
        labels: Mapping[Any, Any] = self.labels
        for label, value in labels.items():
            if not isinstance(label, str) or not isinstance(value, str):
                raise TypeError(
                    f"labels has {label!r}: {value!r}; give names and values as text, as str() does"
                )
        return series_key(self.name, self.labels)
