"""Labels from the attributes of OpenTelemetry. Pure; the names are those of `ahwire.otel_names`."""

import json
from collections.abc import Mapping

from ahwire.otel_names import label_name


def label_value(value: object) -> str:
    """Return text as it is, and everything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        # No attribute the API allows ends here, and a label must never cost a point.
        return type(value).__name__


def labels_of(attributes: Mapping[str, object] | None) -> dict[str, str]:
    """Return attributes as labels.

    The values of attributes whose keys give the same label are joined with `;`, ordered by key.
    """
    labels: dict[str, str] = {}
    for key, value in sorted((attributes or {}).items()):
        name = label_name(str(key))
        text = label_value(value)
        labels[name] = f"{labels[name]};{text}" if name in labels else text
    return labels
