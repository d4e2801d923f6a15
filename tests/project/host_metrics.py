"""What `ahwal.host` measures, told for people; a test compares it with what the collectors yield.

A line is: collector, metric, unit, label, what it tells. A metric with a `?` is not told by every
system, and so may be missing.
"""

from attrs import frozen

_LINES = """
cpu       | cpu_usage_percent            | percent    |           | all processors, neither idle nor waiting for a disk
cpu       | cpu_mode_percent             | percent    | mode      | `user`, `system`, on Linux `iowait` and `steal`
cpu       | cpu_count                    | processors |           | logical processors
memory    | memory_total_bytes           | bytes      |           | memory of the machine
memory    | memory_available_bytes       | bytes      |           | what programs can have without swapping
memory    | memory_used_bytes            | bytes      |           | in use, as the system counts it
memory    | memory_used_percent          | percent    |           | total without available, of total
swap      | swap_total_bytes             | bytes      |           | swap space
swap      | swap_used_bytes              | bytes      |           | swap space in use
swap      | swap_used_percent            | percent    |           | swap space in use, of all
load      | load_1m                      | processes  |           | load average of 1 minute
load      | load_5m                      | processes  |           | load average of 5 minutes
load      | load_15m                     | processes  |           | load average of 15 minutes
disks     | disk_total_bytes             | bytes      | mount     | size of a file system
disks     | disk_used_bytes              | bytes      | mount     | in use
disks     | disk_free_bytes              | bytes      | mount     | free for programs without privileges
disks     | disk_used_percent            | percent    | mount     | in use, of what such programs could use
disk_io   | disk_read_bytes_total?       | bytes      | device    | read
disk_io   | disk_written_bytes_total?    | bytes      | device    | written
disk_io   | disk_reads_total?            | operations | device    | reads
disk_io   | disk_writes_total?           | operations | device    | writes
network   | network_received_bytes_total | bytes      | interface | received
network   | network_sent_bytes_total     | bytes      | interface | sent
network   | network_receive_errors_total | packets    | interface | received with errors
network   | network_send_errors_total    | packets    | interface | not sent, for errors
network   | network_receive_drops_total  | packets    | interface | received and dropped
network   | network_send_drops_total     | packets    | interface | dropped before sending
uptime    | uptime_seconds               | seconds    |           | since the machine started
processes | processes_count              | processes  |           | processes that exist
self      | agent_cpu_percent            | percent    |           | of one core, by this process; over 100 with several
self      | agent_rss_bytes              | bytes      |           | resident memory of this process
self      | agent_threads                | threads    |           | threads of this process
self      | agent_uptime_seconds         | seconds    |           | since this process started
self      | agent_open_files?            | files      |           | descriptors this process holds; not on Windows
"""  # noqa: E501 - a table is read across


@frozen
class HostMetric:
    """A line of the table; `anywhere` is False where not every system tells it."""

    collector: str
    name: str
    unit: str
    label: str
    help: str
    anywhere: bool


def _metric(line: str) -> HostMetric:
    collector, name, unit, label, text = (part.strip() for part in line.split("|"))
    return HostMetric(collector, name.rstrip("?"), unit, label, text, not name.endswith("?"))


HOST_METRICS = tuple(map(_metric, _LINES.strip().splitlines()))
