"""Importing the package costs an embedding program little."""

import subprocess
import sys

HEAVY = ["cattrs", "google.protobuf", "zstandard", "email", "ipaddress", "ahwire.hub"]


def test_heavy_modules_are_imported_only_when_asked_for():
    # Only what the import adds counts: a tool that measures coverage brings modules of its own.
    code = (
        "import sys; before = set(sys.modules); import ahwire; "
        f"print([m for m in {HEAVY!r} if m in set(sys.modules) - before])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
