"""The library prometheus_client, or an error that says how to get it."""

try:
    import prometheus_client
except ModuleNotFoundError as error:
    if error.name != "prometheus_client":
        raise
    raise ModuleNotFoundError(
        "ahwal.prometheus exports registries of prometheus_client, which is missing; "
        "pip install 'ahwal[prometheus]'",
        name=error.name,
    ) from error

__all__ = ["prometheus_client"]
