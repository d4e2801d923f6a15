"""This machine's metrics, read with psutil (extra `ahwal[host]`)."""

try:
    from ahwal.host._collectors import collectors
    from ahwal.host._inventory import inventory
except ModuleNotFoundError as error:
    if error.name != "psutil":
        raise
    raise ModuleNotFoundError(
        "ahwal.host reads the machine with psutil, which is missing; install ahwal[host]",
        name=error.name,
    ) from error

__all__ = ["collectors", "inventory"]
