"""pygal as the charts need it, and nothing of it in the way of others.

Importing pygal puts a finder for its map plug-ins behind every later import, of a kind that Python
warns about. No map is drawn here, so the finder goes.
"""

import sys

import pygal

sys.meta_path[:] = [one for one in sys.meta_path if type(one).__name__ != "PluginImportFixer"]

Style = pygal.style.Style
XY = pygal.XY
etree = pygal.etree.etree

__all__ = ["XY", "Style", "etree"]
