"""A `prometheus_client` registry as a collector (extra `ahwal[prometheus]`)."""

from ahwal.prometheus._collector import RegistryCollector, collector

__all__ = ["RegistryCollector", "collector"]
