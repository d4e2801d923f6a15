"""The public names, written down: a change of them is seen here first."""

import importlib
import subprocess
import sys

import pytest

PUBLIC = {
    "ahwal": [
        "WAL", "Agent", "AgentConfig", "AgentRevokedError", "AgentState", "AgentStatus",
        "AhwalError", "AlreadyEnrolledError", "Appended", "BusyError", "Client", "Collector",
        "ConfigError", "CredentialsError", "DeliveryState", "DropReason", "EnrolError",
        "EnrolRefusedError", "EnrolTemporaryError", "Enqueued", "Entry", "EntryTooLargeError",
        "MemoryQueue", "NotEnrolledError", "Queue", "QueueClosedError", "QueueError", "Sample",
        "Sender", "SenderStatus", "Stats", "TokenError", "TransportError", "WALClosedError",
        "WALError", "WALFormatError", "WALLockedError", "WALOpenError", "WALReadError",
        "WALWriteError", "enroll",
    ],
    "ahwal.agent": [
        "Agent", "AgentConfig", "AgentState", "AgentStatus", "Collect", "Collector",
        "CredentialStore", "Credentials", "default_state_dir", "enroll", "load_config",
    ],
    "ahwal.cli": ["ExitCode", "main"],
    "ahwal.host": ["collectors", "inventory"],
    "ahwal.opentelemetry": ["DEFAULT_RESOURCE_LABELS", "AhwalMetricExporter", "Refused"],
    "ahwal.prometheus": ["RegistryCollector", "collector"],
    "ahwal.queue": ["DropReason", "Entry", "MemoryQueue", "Queue", "Stats"],
    "ahwal.sender": [
        "Appended", "DeliveryState", "DropReason", "Enqueued", "Sender", "SenderStatus",
    ],
    "ahwal.testing": [
        "FakeClock", "PowerCut", "QueueContract", "RecordedRequest", "Script", "ScriptedAnswer",
        "ScriptedCollector", "SimulatedDisk", "SimulatedStorage", "acknowledge", "protobuf",
        "refuse", "settle",
    ],
    "ahwal.transport": ["Client", "ConfigReply", "MetricsTransport", "Reply"],
    "ahwal.wal": [
        "WAL", "Entry", "File", "Lock", "PosixStorage", "RecoveryReport", "Stats", "Storage",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_exports_are_those_written_down(name):
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(PUBLIC[name])
    assert all(getattr(module, export) is not None for export in module.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        getattr(importlib.import_module("ahwal"), "nothing")  # noqa: B009 - it is the test


def test_importing_the_package_loads_no_heavy_library():
    code = (
        "import sys, ahwal;"
        "print([m for m in ('httpx', 'httpcore', 'psutil', 'yaml', 'anyio', 'google.protobuf',"
        " 'opentelemetry', 'prometheus_client')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["host", "opentelemetry", "prometheus", "testing", "agent"])
def test_a_part_of_the_package_is_an_attribute_without_an_import_of_its_own(name):
    pytest.importorskip(f"ahwal.{name}")
    code = f"import ahwal; print(ahwal.{name}.__all__[0], ahwal.Sample.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith(" Sample\n"), done.stderr


def test_all_public_names_are_listed_those_that_are_loaded_later_too():
    import ahwal

    assert {*ahwal.__all__, "host", "prometheus", "opentelemetry", "testing"} <= set(dir(ahwal))
    for name in dir(ahwal):
        getattr(ahwal, name)


def test_without_its_extra_a_part_is_no_attribute_and_the_error_says_what_to_install():
    code = (
        "import sys, ahwal; sys.modules['psutil'] = None; assert not hasattr(ahwal, 'host');"
        "import inspect; inspect.getmembers(ahwal); ahwal.host"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "AttributeError: ahwal.host cannot be imported" in done.stderr
    assert "ahwal[host]" in done.stderr
    code = "import sys; sys.modules['psutil'] = None; from ahwal import host"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ModuleNotFoundError" in done.stderr
