"""How commands print data: a table for people, JSON for programs."""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def print_rows(
    rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], as_json: bool, empty: str
) -> None:
    """Prints rows.

    Args:
        rows: what is printed.
        columns: the columns of the table, in order; JSON has all that a row has.
        as_json: a JSON array instead of a table.
        empty: said instead of an empty table.
    """
    if as_json:
        print(json.dumps(list(rows), indent=2, default=str))
        return
    if not rows:
        print(empty)
        return
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    titles = [column.replace("_", " ") for column in columns]
    widths = [max(len(line[place]) for line in [titles, *cells]) for place in range(len(columns))]
    for line in [titles, *cells]:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def print_mapping(values: Mapping[str, Any], *, as_json: bool) -> None:
    """Prints names and values, one a line."""
    if as_json:
        print(json.dumps(values, indent=2, default=str))
        return
    width = max(len(name) for name in values)
    for name, value in values.items():
        print(f"{shown(name.replace('_', ' ')):<{width}}  {_cell(value)}")


def shown(text: str) -> str:
    """A text in one line that drives no terminal: what is not printable is written as in Python.

    What a hub, an agent or a store wrote is printed as well as the operator's own words.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _cell(value: Any) -> str:
    return "-" if value is None else shown(str(value))
