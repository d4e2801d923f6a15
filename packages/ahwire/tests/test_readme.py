"""The example of the README runs."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert "agents[0].company_id - is missing" in capsys.readouterr().out
