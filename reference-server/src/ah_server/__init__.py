"""The five libraries composed into one server; begin reading at `ah_server.wiring`."""

from ah_server._about import VERSION

__all__ = ["__version__"]

__version__ = VERSION
