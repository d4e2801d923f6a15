"""Run benchmarks and write what they say into the documentation: tables, JSON, one chart.

    .venv/bin/python benchmarks/gather.py [--quick] [--only-write] [append recovery …]

Those that are not named keep the figures of their last run. With --quick nothing is written.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pygal
from _harness import HERE

DOCS = HERE.parent / "docs"
PAGE = DOCS / "reference" / "figures.md"
DATA = DOCS / "reference" / "figures.json"
CHART = DOCS / "images" / "figures.svg"
BEGIN = "<!-- what `nox -s bench` measured: begin -->"
END = "<!-- what `nox -s bench` measured: end -->"
# A bar ends here, whatever its figure: what is ten times better than asked is good enough.
BAR_MAX = 4.0

Answer = dict[str, Any]


def names() -> list[str]:
    """All benchmarks there are."""
    return sorted(file.stem.removeprefix("bench_") for file in HERE.glob("bench_*.py"))


def script(name: str) -> Path:
    """The file of a benchmark."""
    return HERE / f"bench_{name}.py"


def run(name: str, *, quick: bool) -> Answer | None:
    """Run one and return its answer; None when it failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answer.json"
        command = [sys.executable, str(script(name)), "--json", str(file)]
        command += ["--quick"] if quick else []
        print(f"\n{name}", flush=True)
        if subprocess.run(command, check=False).returncode != 0:
            return None
        answer: Answer = json.loads(file.read_text())
        return answer


def section(name: str, answer: Answer) -> list[str]:
    """The lines of the page about one benchmark."""
    docstring = ast.get_docstring(ast.parse(script(name).read_text())) or name
    title, _, text = docstring.partition("\n\n")
    lines = [f"## {' '.join(title.split())}", "", text.strip(), ""]
    lines += ["| question | measured | to reach | remark |", "| --- | --- | --- | --- |"]
    for row in answer["rows"]:
        outcome = "reached" if row["reached"] else "**not reached**"
        cells = (row["question"], row["measured"], f"{row['target']}: {outcome}", row["note"])
        lines.append(f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |")
    where = answer["circumstances"]
    versions = ", ".join(f"{key} {value}" for key, value in where["versions"].items())
    changed = " with changes" if where["changed"] else ""
    lines += [
        "",
        (
            f"`nox -s bench -- {name}`, {answer['seconds']:.0f} s on {where['date']} at commit "
            f"{where['commit']}{changed}: Python {where['python']}, {where['system']}, "
            f"{where['cores']} cores of {where['processor']}, load average {where['load_average']} "
            f"at the end; {versions}."
        ),
        "",
    ]
    return lines


def page(text: str, answers: dict[str, Answer]) -> str:
    """The page with the part between the marks made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = [line for name in names() if name in answers for line in section(name, answers[name])]
    middle = "\n".join(["", *lines])
    return f"{before}{BEGIN}\n{middle}{END}{after}"


def margin(row: dict[str, Any]) -> float:
    """How many times better than the figure to reach; below 1 it is not reached."""
    value, limit = float(row["value"]), float(row["limit"])
    if row["less_is_better"]:
        return limit / value if value else BAR_MAX
    return value / limit


def bar(row: dict[str, Any]) -> dict[str, Any]:
    """The bar of one figure, with its number."""
    passed = margin(row)
    return {"value": min(passed, BAR_MAX), "formatter": lambda _value: f"{passed:.2f}"}


def chart(answers: dict[str, Answer]) -> bytes:
    """All figures as bars: from 1 on they are reached."""
    rows = [row for name in names() for row in answers.get(name, {"rows": []})["rows"]]
    style = pygal.style.Style(
        colors=("#2a6f97", "#c1121f"),
        background="#ffffff",
        plot_background="#ffffff",
        font_family="sans-serif",
        label_font_size=11,
        value_font_size=10,
        major_label_font_size=11,
        title_font_size=15,
    )
    drawn = pygal.HorizontalStackedBar(
        style=style,
        js=[],
        no_prefix=True,
        width=1100,
        height=90 + 34 * len(rows),
        truncate_label=90,
        legend_at_bottom=True,
        range=(0, BAR_MAX),
        title="How far the figures to reach are passed (1 is reached, bars end at 4)",
        x_labels_major=[1],
        print_values=True,
        print_zeroes=False,
    )
    # The first bar is drawn at the bottom.
    rows.reverse()
    drawn.x_labels = [row["question"].replace("`", "") for row in rows]
    drawn.add("reached", [bar(row) if row["reached"] else None for row in rows])
    drawn.add("not reached", [None if row["reached"] else bar(row) for row in rows])
    rendered: bytes = drawn.render(disable_xml_declaration=False)
    return rendered


def write(answers: dict[str, Answer]) -> None:
    """Write numbers, page and chart."""
    known = {name: answers[name] for name in names() if name in answers}
    DATA.write_text(json.dumps(known, indent=2, ensure_ascii=False) + "\n")
    PAGE.write_text(page(PAGE.read_text(), known))
    CHART.write_bytes(chart(known))


def main() -> int:
    """Run, then write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as append; default: all")
    parser.add_argument("--quick", action="store_true", help="only see them run")
    parser.add_argument("--only-write", action="store_true", help="run none, write the page anew")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(names()))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(names())}")
    answers: dict[str, Answer] = json.loads(DATA.read_text()) if DATA.exists() else {}
    failed = []
    for name in [] if given.only_write else given.names or names():
        answer = run(name, quick=given.quick)
        if answer is None:
            failed.append(name)
        elif not given.quick:
            # At once, so that a run that is ended keeps what it has.
            answers[name] = answer
            write(answers)
    if given.only_write:
        write(answers)
    if failed:
        print(f"failed, and not in the tables: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
