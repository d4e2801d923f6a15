"""Lets the tests of this folder share the modules that lie beside them, and counts crashes."""

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from wal_report import REPORT_VARIABLE, Tally

_TALLY = pytest.StashKey[Tally]()


def pytest_configure(config):
    config.stash[_TALLY] = Tally()


def pytest_unconfigure(config):
    path = os.environ.get(REPORT_VARIABLE)
    if path:
        config.stash[_TALLY].write(Path(path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" or report.outcome != "passed":
        item.config.stash[_TALLY].outcomes[report.outcome] += 1
    return report


@pytest.fixture(scope="session")
def tally(pytestconfig):
    """What is counted for the report of the nightly run."""
    return pytestconfig.stash[_TALLY]
