"""From OpenTelemetry's attributes to labels. Pure.

Law of this file: the labels of a data point cost no more than a series may have, whatever its
attributes say, before they are multiplied by the buckets of a histogram. What is over a limit of
the door is refused here under the code that the common judgement would give it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import attrs
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue

from ahwire.batch import TOO_LONG, TOO_MANY_LABELS
from ahwire.limits import Limits
from ahwire.names import is_reserved_label
from ahwire.otel_names import label_name

__all__ = ["Labeller", "Labels", "Unfit", "text_of"]

Labels = dict[str, str]

_SERVICE = "service.name"
_NAMESPACE = "service.namespace"
_INSTANCE = "service.instance.id"
_IDENTITY = frozenset({_SERVICE, _NAMESPACE, _INSTANCE})

_SCALARS = frozenset({"bool_value", "int_value", "double_value"})

# Attributes that a point may have for each label that it may keep, as in the judgement of batches:
# the others are reserved or double.
_LABELS_OVER = 2


@attrs.frozen(kw_only=True)
class Unfit:
    """Why a data point cannot be stored.

    Attributes:
        code: What it is counted under.
        reason: What is wrong, and the way out.
    """

    code: str
    reason: str


class Labeller:
    """Makes labels of attributes, for one request.

    Args:
        limits: What series are held to.

    Attributes:
        shadowed: Attributes left out so far since their label was there already.
    """

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits
        # The same keys come with every point. One that gives a reserved name gives none.
        self._names: dict[str, str] = {}
        self.shadowed = 0

    def of_resource(self, attributes: Sequence[KeyValue]) -> Labels | Unfit:
        """Return what tells one program from another: ``job`` and ``instance``.

        Args:
            attributes: Of the resource. They are ``service.name``, with ``service.namespace/``
                before it where there is one, and ``service.instance.id``.
        """
        found: Labels = {}
        for pair in attributes:
            if pair.key in _IDENTITY and pair.key not in found:
                text = text_of(pair.value, self._limits.label_value_bytes)
                if text is None:
                    return self._too_long(pair.key)
                found[pair.key] = text
        job, instance = found.get(_SERVICE), found.get(_INSTANCE)
        if job and found.get(_NAMESPACE):
            job = f"{found[_NAMESPACE]}/{job}"
        return {name: text for name, text in (("job", job), ("instance", instance)) if text}

    def of_scope(self, scope: InstrumentationScope) -> Labels | Unfit:
        """Return the labels of an instrumentation scope: its name and its version."""
        named = {"otel_scope_name": scope.name, "otel_scope_version": scope.version}
        for name, text in named.items():
            if _is_longer(text, self._limits.label_value_bytes):
                return self._too_long(name)
        return {name: text for name, text in named.items() if text}

    def of_target(self, attributes: Sequence[KeyValue], identity: Labels) -> Labels | Unfit:
        """Return the labels of a resource's ``target_info``: all that is known of the resource.

        An attribute that is too long for a label is left out of it; there are command lines among
        them, and the others are of use without.
        """
        if len(attributes) > _LABELS_OVER * self._limits.labels_per_series:
            return self._too_many(len(attributes), "attributes")
        kept = [
            pair
            for pair in attributes
            if pair.key not in _IDENTITY
            and text_of(pair.value, self._limits.label_value_bytes) is not None
        ]
        return self.of_point(kept, identity)

    def of_point(
        self, attributes: Sequence[KeyValue], above: Labels, *, kept_free: str = ""
    ) -> Labels | Unfit:
        """Return the labels of a data point.

        Args:
            attributes: Of the point; of two that give one label the first wins.
            above: Labels of its resource and scope; they win, for they tell whose series this is.
            kept_free: The label that a histogram or a summary needs for itself.
        """
        most = self._limits.labels_per_series
        if len(attributes) > _LABELS_OVER * most:
            return self._too_many(len(attributes), "attributes")
        labels = dict(above)
        for pair in attributes:
            name = self._name(pair.key)
            if not name:
                continue
            if name in labels or name == kept_free:
                self.shadowed += 1
                continue
            text = text_of(pair.value, self._limits.label_value_bytes)
            if text is None or len(name) > self._limits.name_bytes:
                return self._too_long(pair.key)
            if text:  # an empty label is none
                labels[name] = text
        count = len(labels) + bool(kept_free)
        return self._too_many(count, "labels") if count > most else labels

    def _name(self, key: str) -> str:
        name = self._names.get(key)
        if name is None:
            name = label_name(key)
            if is_reserved_label(name):
                name = ""
            self._names[key] = name
        return name

    def _too_many(self, count: int, what: str) -> Unfit:
        most = self._limits.labels_per_series
        return Unfit(
            code=TOO_MANY_LABELS,
            reason=f"it has {count} {what}, and at most {most} labels are stored: drop some",
        )

    def _too_long(self, key: str) -> Unfit:
        return Unfit(
            code=TOO_LONG,
            reason=f"attribute {key[:60]!r} is too long: a label's name may have "
            f"{self._limits.name_bytes} bytes and its value {self._limits.label_value_bytes}",
        )


def text_of(value: AnyValue, bytes_max: int) -> str | None:
    """Return the text of an attribute's value, or None when it is longer than a label may be.

    Text stays as it is, bytes become base64, and everything else becomes JSON; nothing is empty.

    Args:
        value: Any; what is in it is not looked at any more once it is too long.
        bytes_max: UTF-8 bytes that the text may have.
    """
    # Each piece of a list or a map takes at least one byte of the text.
    found, left = _plain(value, bytes_max)
    if left < 0:
        return None
    if found is None:
        return ""
    text = found if isinstance(found, str) else _json(found)
    return None if _is_longer(text, bytes_max) else text


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _plain(value: AnyValue, left: int) -> tuple[object, int]:
    """Return a value as JSON has it, and how many more bytes may come; below 0: too many came.

    The parser of messages bounds how deep they are, and so the recursion.
    """
    kind = value.WhichOneof("value")
    left -= 1
    if kind == "string_value":
        return value.string_value, left - len(value.string_value)
    if kind == "bytes_value":
        if len(value.bytes_value) > left:
            return None, -1
        return base64.b64encode(value.bytes_value).decode(), left - len(value.bytes_value)
    if kind == "array_value":
        items: list[object] = []
        for one in value.array_value.values:
            item, left = _plain(one, left)
            items.append(item)
            if left < 0:
                break
        return items, left
    if kind == "kvlist_value":
        fields: dict[str, object] = {}
        for pair in value.kvlist_value.values:
            item, left = _plain(pair.value, left - len(pair.key))
            fields.setdefault(pair.key, item)
            if left < 0:
                break
        return fields, left
    # None for what is empty, and for a reference into a dictionary, which metrics have not.
    return (getattr(value, kind) if kind in _SCALARS else None), left


def _is_longer(text: str, bytes_max: int) -> bool:
    """Whether the UTF-8 form has more bytes; a character has at most four."""
    return len(text) * 4 > bytes_max and len(text.encode()) > bytes_max
