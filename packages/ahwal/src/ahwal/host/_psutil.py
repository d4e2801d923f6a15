"""The library psutil, or an error that says how to get it."""

try:
    import psutil
except ModuleNotFoundError as error:
    if error.name != "psutil":
        raise
    raise ModuleNotFoundError(
        "ahwal.host reads the machine with psutil, which is missing; install ahwal[host]",
        name=error.name,
    ) from error

__all__ = ["psutil"]
