"""The version of the installed distribution."""

from importlib import metadata


def package_version() -> str:
    """Return the version of `ahwal`, or `0` when it runs from a tree that was never installed."""
    try:
        return metadata.version("ahwal")
    except metadata.PackageNotFoundError:
        return "0"
