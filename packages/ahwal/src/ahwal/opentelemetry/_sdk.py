"""What is used of the OpenTelemetry SDK, or an error that says how to get it."""

try:
    from opentelemetry.sdk.metrics import (
        Counter,
        Histogram,
        ObservableCounter,
        ObservableGauge,
        ObservableUpDownCounter,
        UpDownCounter,
    )
    from opentelemetry.sdk.metrics import export as data
    from opentelemetry.sdk.metrics.view import Aggregation
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("opentelemetry"):
        raise
    raise ModuleNotFoundError(
        "ahwal.opentelemetry exports from the OpenTelemetry SDK, which is missing; "
        "pip install 'ahwal[opentelemetry]'",
        name=error.name,
    ) from error

# A gauge has no temporality, and SDKs before 1.23 do not export its class.
INSTRUMENTS: tuple[type, ...] = (
    Counter,
    Histogram,
    ObservableCounter,
    ObservableGauge,
    ObservableUpDownCounter,
    UpDownCounter,
)

__all__ = ["INSTRUMENTS", "Aggregation", "data"]
