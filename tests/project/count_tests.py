"""Prints how many tests passed, from the reports of a run: `count_tests.py FOLDER`."""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def main() -> None:
    """Print a line a report, and all of them together."""
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for file in sorted(Path(sys.argv[1]).glob("*.xml")):
        count = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        for suite in ET.parse(file).getroot().iter("testsuite"):
            for key in count:
                count[key] += int(suite.get(key, "0"))
        failed = count["failures"] + count["errors"]
        passed = max(0, count["tests"] - failed - count["skipped"])
        print(f"{file.stem:26} {passed} passed, {failed} failed, {count['skipped']} skipped")
        totals["passed"] += passed
        totals["failed"] += failed
        totals["skipped"] += count["skipped"]
    print("\n" + ", ".join(f"{number} {word}" for word, number in totals.items()))


if __name__ == "__main__":
    main()
