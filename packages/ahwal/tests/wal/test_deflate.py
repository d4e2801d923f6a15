"""Whichever library deflates, the format is the same."""

import importlib.util
import sys
import zlib
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ahwal.wal import _record


def record_module(monkeypatch: pytest.MonkeyPatch, *, with_isal: bool) -> ModuleType:
    """The module once more, as it is where the extra `fast` is or is not installed."""
    if not with_isal:
        monkeypatch.setitem(sys.modules, "isal", None)
    spec = importlib.util.spec_from_file_location("record_again", _record.__file__)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "record_again", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=[False, True], ids=["zlib", "isal"])
def record(request, monkeypatch):
    if request.param:
        pytest.importorskip("isal", reason="the extra `fast` is not installed")
    module = record_module(monkeypatch, with_isal=request.param)
    assert ("isal" in module.compress.__module__) is request.param
    return module


def test_any_library_writes_raw_deflate_that_zlib_reads(record):
    @given(data=st.binary(max_size=2000) | st.binary(max_size=20).map(lambda part: part * 300))
    @example(data=b"")
    def check(data):
        payload = record.deflate(data)
        assert payload
        assert zlib.decompress(payload, -15) == data
        assert _record.inflate(payload) == data

    check()


def test_a_payload_over_the_limit_is_refused_by_any_library(record, monkeypatch):
    monkeypatch.setattr(record, "PAYLOAD_BYTES_MAX", 64)
    with pytest.raises(_record.EntryTooLargeError):
        record.deflate(bytes(range(256)))
