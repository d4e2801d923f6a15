"""The table of faults is what the tests say, and no line of it is without a test."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import fault_table  # a script beside this file


def test_the_table_is_up_to_date():
    told = fault_table.TABLE.read_text(encoding="utf-8")
    assert told == fault_table.table(), "run tests/project/fault_table.py"


def test_every_fault_of_the_table_has_a_test():
    shown = fault_table.shown()
    assert [fault for fault in fault_table.FAULTS if not shown.get(fault)] == []


def test_a_range_names_all_its_faults():
    assert fault_table.numbers("W3-W5, and (N11)") == {"W3", "W4", "W5", "N11"}
    assert fault_table.numbers("UTF-8 W100 xW1") == set()
