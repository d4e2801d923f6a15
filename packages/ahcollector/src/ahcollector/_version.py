"""The version of this package, as it is installed."""

from importlib.metadata import version
from typing import Final

__all__ = ["VERSION"]

VERSION: Final = version("ahcollector")
