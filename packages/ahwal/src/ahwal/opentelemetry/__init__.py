"""A metric exporter for the OpenTelemetry SDK, durable (extra `ahwal[opentelemetry]`)."""

from ahwal.opentelemetry._convert import Refused
from ahwal.opentelemetry._exporter import DEFAULT_RESOURCE_LABELS, AhwalMetricExporter

__all__ = ["DEFAULT_RESOURCE_LABELS", "AhwalMetricExporter", "Refused"]
