"""What is not installed is named with the extra that brings it."""

import subprocess
import sys

import anyio
import pytest

from ahcollector._extras import missing_extra
from ahcollector.redis import RedisClient, RedisConfig

STORE = "VictoriaMetricsStore(url='http://127.0.0.1:1', write_protocol='remote_write')"


@pytest.mark.parametrize(
    ("package", "line", "extra"),
    [
        ("redis", "import ahcollector.redis", "redis"),
        ("redis", "import ahcollector.bus.redis", "redis"),
        ("nats", "import ahcollector.bus.jetstream", "nats"),
        ("starlette", "from ahcollector import ingest_app", "http"),
        ("cramjam", "from ahcollector.ingest import ingest_app", "http"),
        ("starlette", "from ahcollector.admin import admin_app", "http"),
        (
            "prometheus_client",
            "from ahcollector.metrics import PrometheusMetrics as M; M()",
            "metrics",
        ),
        (
            "cramjam",
            f"from ahcollector.store.victoria_metrics import *; {STORE}",
            "http",
        ),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(package, line, extra):
    code = f"import sys; sys.modules[{package!r}] = None\n{line}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    assert f"needs the package {package}, which is not installed" in last
    assert last.endswith(f"pip install 'ahcollector[{extra}]'")


def test_a_module_of_these_libraries_that_is_missing_is_no_missing_extra():
    error = ModuleNotFoundError("No module named 'ahwire.x'", name="ahwire.x")
    assert missing_extra("this", "http", error) is error


@pytest.mark.parametrize(
    "host", ["h:6379", "[::1]", "redis://me:secret-5@host", "127.0.0.1:6379", ":"]
)
def test_a_host_of_redis_with_a_port_is_refused(host):
    with pytest.raises(ValueError, match="the host of Redis holds a colon") as error:
        RedisConfig(host=host)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("host", ["::1", "redis.example", "10.0.0.5", "fe80::1"])
def test_names_and_addresses_are_hosts(host):
    assert RedisConfig(host=host).host == host


def test_redis_without_asyncio_is_a_sentence():
    async def ask():
        await RedisClient(config=RedisConfig(port=1)).ping()

    with pytest.raises(RuntimeError, match="the client of Redis needs asyncio"):
        anyio.run(ask, backend="trio")
