"""Which version this is."""

from importlib.metadata import version

VERSION = version("ah-reference-server")
