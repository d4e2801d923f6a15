"""`ah-server rollup-rules`: the rule file for vmalert."""

import argparse
import sys
from typing import Any

from ah_server.errors import DependencyError, SettingsError
from ah_server.settings import ServerSettings
from ah_server.wiring import victoria_metrics
from ahcollector.errors import StoreError
from ahcollector.store.victoria_metrics import rollup_rules
from ahwire.names import normalise_name

# What agents of this project measure of a host; each is eight rules.
HOST_METRICS = (
    "agent_cpu_percent",
    "agent_open_files",
    "agent_rss_bytes",
    "agent_threads",
    "agent_uptime_seconds",
    "cpu_count",
    "cpu_mode_percent",
    "cpu_usage_percent",
    "disk_free_bytes",
    "disk_read_bytes_total",
    "disk_reads_total",
    "disk_total_bytes",
    "disk_used_bytes",
    "disk_used_percent",
    "disk_writes_total",
    "disk_written_bytes_total",
    "load_15m",
    "load_1m",
    "load_5m",
    "memory_available_bytes",
    "memory_total_bytes",
    "memory_used_bytes",
    "memory_used_percent",
    "network_receive_drops_total",
    "network_receive_errors_total",
    "network_received_bytes_total",
    "network_send_drops_total",
    "network_send_errors_total",
    "network_sent_bytes_total",
    "processes_count",
    "swap_total_bytes",
    "swap_used_bytes",
    "swap_used_percent",
    "uptime_seconds",
)
METRICS_MAX = 1_000


def add_commands(commands: Any, with_settings: argparse.ArgumentParser) -> None:
    """Adds the commands of this module."""
    rules = commands.add_parser(
        "rollup-rules",
        parents=[with_settings],
        help="print the rule file with which vmalert records rollups of 5 minutes and of an hour",
        description="Prints a rule file (YAML) for vmalert: sum, count, minimum and maximum of each"
        " metric over 5 minutes and over an hour; averages are made from sum and count. Without"
        " options it has the metrics that agents measure of a host.",
        epilog="example: ah-server rollup-rules --metric cpu_usage_percent > rollups.yml",
    )
    which = rules.add_mutually_exclusive_group()
    which.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        type=_metric,
        default=[],
        help="a metric to record, with or without ah_; may be given several times",
    )
    which.add_argument(
        "--from-store",
        action="store_true",
        help=f"all metrics that the VictoriaMetrics of tsdb.url has now, at most {METRICS_MAX}",
    )
    rules.set_defaults(command=_print_rules)


def _metric(text: str) -> str:
    if normalise_name(text) in {"", "ah_"}:
        raise argparse.ArgumentTypeError("the name of a metric is empty")
    return text


async def _print_rules(options: argparse.Namespace) -> int:
    names = options.metric or HOST_METRICS
    if options.from_store:
        names = await _names_in_store(options.settings)
    sys.stdout.write(rollup_rules(names))
    sys.stdout.flush()
    return 0


async def _names_in_store(settings: ServerSettings) -> tuple[str, ...]:
    url = settings.tsdb.url
    if not url:
        raise SettingsError(
            [
                (
                    "tsdb.url: it is empty, so --from-store has no store to ask; set it, or name"
                    " metrics with --metric"
                )
            ]
        )
    async with victoria_metrics(settings) as store:
        try:
            names = await store.metric_names(most=METRICS_MAX)
        except StoreError as error:
            raise DependencyError(
                f"tsdb.url: {url} does not tell its metrics ({error}); name them with --metric"
            ) from error
    if not names:
        raise DependencyError(
            f"tsdb.url: {url} has no samples of agents yet; name metrics with --metric"
        )
    return names
