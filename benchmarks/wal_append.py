"""How much does a durable append cost beside the disk itself?

One real batch of about 10 KB is appended to a WAL; beside it, in turns, the same record's bytes are
written to a plain file with one write and one fdatasync. The answer is the ratio of the medians.

    .venv/bin/python benchmarks/wal_append.py [--rounds 2000] [--json FILE]
"""

import argparse
import json
import os
import statistics
import tempfile
import time
import zlib
from pathlib import Path

from ahwal import WAL
from ahwire.agent_pb2 import MetricsBatch

RECORD_HEADER_BYTES = 24
TARGET_RATIO = 1.6


def batch() -> bytes:
    """A batch like a host's: many series of a few labels, one point each."""
    message = MetricsBatch(seq=1, collected_at_ms=1_796_000_000_000)
    for number in range(104):
        series = message.series.add(name=f"disk_read_bytes_total_{number % 40}")
        series.labels.add(name="device", value=f"nvme{number}n1")
        series.labels.add(name="mount", value=f"/var/lib/volumes/{number:04d}")
        series.points.add(ts_ms=1_796_000_000_000, value=number * 1234.5678)
    return message.SerializeToString()


def main() -> None:
    """Measures in turns, so that both meet the same disk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data = batch()
    compressor = zlib.compressobj(wbits=-15)
    record = b"\0" * RECORD_HEADER_BYTES + compressor.compress(data) + compressor.flush()
    ours: list[float] = []
    floor: list[float] = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        fd = os.open(Path(folder) / "plain", os.O_WRONLY | os.O_CREAT, 0o600)
        with WAL.open(Path(folder) / "wal", max_bytes=1 << 30) as queue:
            for _ in range(options.rounds):
                began = time.perf_counter()
                queue.append(data)
                between = time.perf_counter()
                os.write(fd, record)
                os.fdatasync(fd)
                floor.append(time.perf_counter() - between)
                ours.append(between - began)
        os.close(fd)
    result = {
        "question": "durable append of one batch against write + fdatasync of the record's bytes",
        "batch_bytes": len(data),
        "record_bytes": len(record),
        "rounds": options.rounds,
        "ours_median_us": round(statistics.median(ours) * 1e6, 1),
        "floor_median_us": round(statistics.median(floor) * 1e6, 1),
        "ratio": round(statistics.median(ours) / statistics.median(floor), 3),
        "ratio_to_reach": TARGET_RATIO,
    }
    for name, value in result.items():
        print(f"{name:18} {value}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
