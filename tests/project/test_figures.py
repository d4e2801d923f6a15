"""The page of figures says what the last run of the benchmarks wrote, and leaves out none."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


def test_every_figure_is_on_the_page_reached_or_not():
    answers = json.loads((REFERENCE / "figures.json").read_text(encoding="utf-8"))
    page = (REFERENCE / "figures.md").read_text(encoding="utf-8")
    assert answers
    for answer in answers.values():
        for row in answer["rows"]:
            outcome = "reached" if row["reached"] else "**not reached**"
            line = f"| {row['question']} | {row['measured']} | {row['target']}: {outcome} |"
            assert line in page, "run benchmarks/gather.py --only-write"
            # What was missed has its reason beside it.
            assert row["reached"] or row["note"]


def test_every_benchmark_is_on_the_page():
    answers = json.loads((REFERENCE / "figures.json").read_text(encoding="utf-8"))
    benchmarks = (ROOT / "benchmarks").glob("bench_*.py")
    names = {file.stem.removeprefix("bench_") for file in benchmarks}
    assert names == set(answers), "run nox -s bench -- NAME"
