import logging

import pytest


@pytest.fixture(autouse=True)
def root_log(monkeypatch):
    """Let no later test meet the log of a command that ran in this process."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
