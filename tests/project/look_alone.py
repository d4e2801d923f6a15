"""Run by the interpreter of a package installed alone: what is there of ours, and from where?

look_alone.py IMPORT_NAME "every name of ours" "the names that are declared"
"""

import importlib.util
import sys

name, ours, declared = sys.argv[1], sys.argv[2].split(), sorted(sys.argv[3].split())
found = {other: importlib.util.find_spec(other) for other in ours}
there = sorted(other for other, spec in found.items() if spec is not None)
if there != declared:
    sys.exit(f"of ours, {there} can be imported and {declared} is declared")
for other in there:
    origin = str(found[other].origin)
    if not origin.startswith(sys.prefix):
        sys.exit(f"{other} comes from {origin}, not from its wheel")
__import__(name)
