"""The tables of the reference pages are what the code says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_setting_metric_exit_code_and_status_has_its_line():
    script = Path(__file__).with_name("docs_tables.py")
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def public_modules(package):
    """What stands directly in a package on a public path, generated code left out."""
    source = ROOT / "packages" / package / "src" / package
    for path in sorted(source.iterdir()):
        is_module = path.suffix == ".py" or (path / "__init__.py").exists()
        if is_module and not path.name.startswith("_") and not path.stem.endswith("_pb2"):
            yield f"{package}.{path.stem}"


@pytest.mark.parametrize("package", ["ahwire", "ahrules", "ahwal", "ahcollector", "ahnotify"])
def test_every_public_module_is_on_its_package_s_page(package):
    page = (ROOT / "docs" / "reference" / f"{package}.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: (\S+)$", page, re.MULTILINE))
    assert shown == {package, *public_modules(package)}
