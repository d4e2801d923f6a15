"""Writes the reference's tables from the code: `docs_tables.py`, or `docs_tables.py --check`.

A page holds `<!-- table NAME -->` and `<!-- end -->`; what stands between is made by the function
NAME below. With --check nothing is written, and the exit code is 1 when a page is out of date.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
from http_reference import http_page, rows
from hub_messages import hub_messages

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "reference"
TABLE = re.compile(r"(<!-- table ([a-z_]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def code(text: object) -> str:
    """A text as code; nothing for nothing."""
    return f"`{text}`" if str(text) else ""


def server_settings() -> str:
    settings = importlib.import_module("ah_server.settings")
    lines = (
        (
            code(line.name),
            code(line.default),
            line.allowed,
            line.doc,
        )
        for line in settings.setting_lines()
    )
    return rows(("setting", "default", "allowed", "what it is"), lines)


def agent_settings() -> str:
    table = importlib.import_module("ahwal.agent._settings")
    fields = attrs.fields_dict(importlib.import_module("ahwal").AgentConfig)

    def default(setting: object) -> str:
        value = fields[setting.field].default
        if setting.field == "state_dir":
            return "by platform"
        if value is None or isinstance(value, attrs.Factory) or value == ():
            return ""
        show = {"seconds": table.show_seconds, "bytes": table.show_bytes}.get(setting.kind.value)
        return code(show(value) if show else str(value).lower())

    lines = (
        (
            code(s.key),
            code(s.field),
            default(s),
            s.range,
            s.help,
        )
        for s in table.SETTINGS
    )
    heads = ("setting", "in `AgentConfig`", "default", "allowed", "what it is")
    # The page gives one rule for all variables and flags; no setting may be an exception.
    for s in table.SETTINGS:
        name = s.key.replace(".", "_")
        assert (s.variable, s.flag) == ("AH_" + name.upper(), "--" + name.replace("_", "-"))
    return rows(heads, lines)


def agent_exit_codes() -> str:
    exits = importlib.import_module("ahwal.cli._exit")
    lines = []
    for number in exits.ExitCode:
        errors = [code(error.__name__) for error, its in exits._BY_ERROR if its is number]
        if number is exits.ExitCode.TEMPORARY:
            errors.append("every other error")
        lines.append((code(int(number)), number.name.lower().replace("_", " "), ", ".join(errors)))
    return rows(("code", "meaning", "ends with it"), lines)


def server_exit_codes() -> str:
    codes = importlib.import_module("ah_server.cli._main").EXIT_CODES
    return rows(("code", "meaning"), ((code(number), text) for number, text in codes.items()))


def status_table() -> str:
    status = importlib.import_module("ahwire.status")
    ack = importlib.import_module("ahwire.agent_pb2").MetricsAck(ack_seq=1)

    def action(number: int, text: str | None) -> str:
        return code(status.classify(number, code=text, ack=None, sent_seq=1).value)

    acknowledged = code(status.classify(202, code=None, ack=ack, sent_seq=1).value)
    lines = [("200, 202", "", f"{acknowledged} with an ack of the batch", action(202, None))]
    for text, number in status.HTTP_STATUS.items():
        its_ack = ack if number == 422 else None
        with_code = status.classify(number, code=text, ack=its_ack, sent_seq=1).value
        lines.append((number, code(text.value), code(with_code), action(number, None)))
    lines.append(("any other", "", "", action(302, None)))
    return rows(("status", "code", "with the code", "without it"), lines)


def actions() -> str:
    status = importlib.import_module("ahwire.status")
    source = inspect.getsource(status.Action)
    meanings = dict(re.findall(r'^    ([A-Z_]+) = .*\n    """(.*?)"""', source, re.MULTILINE))
    lines = ((code(each.value), meanings[each.name]) for each in status.Action)
    return rows(("action", "what the agent does"), lines)


def collector_metrics() -> str:
    metrics = importlib.import_module("ahcollector.metrics")
    lines = (
        (code(m.name), m.kind.value, ", ".join(map(code, m.labels)), m.help)
        for m in metrics.ALL_METRICS
    )
    return rows(("metric", "kind", "labels", "what it tells"), lines)


def agent_metrics() -> str:
    own = importlib.import_module("ahwal.agent._own")
    lines = ((code(m.name), code(m.label), m.help) for m in own.OWN_METRICS)
    return rows(("metric", "label", "what it tells"), lines)


def host_metrics() -> str:
    table = importlib.import_module("host_metrics")
    lines = ((m.collector, code(m.name), m.unit, code(m.label), m.help) for m in table.HOST_METRICS)
    return rows(("collector", "metric", "unit", "label", "what it tells"), lines)


def limits() -> str:
    module = importlib.import_module("ahwire.limits")
    lines = (
        (code(name), code(getattr(module, name)))
        for name in sorted(module.__all__)
        if name.isupper() and isinstance(getattr(module, name), int | float | str)
    )
    return rows(("limit", "value"), lines)


def http_admin() -> str:
    return http_page("ahcollector.admin")


def http_agent() -> str:
    return http_page("ahcollector.ingest")


TABLES = {
    each.__name__: each
    for each in (
        server_settings,
        agent_settings,
        agent_exit_codes,
        server_exit_codes,
        status_table,
        actions,
        collector_metrics,
        agent_metrics,
        host_metrics,
        limits,
        http_admin,
        http_agent,
        hub_messages,
    )
}


def main(arguments: Sequence[str]) -> int:
    """Rewrite or check all pages."""
    stale, written = [], set()
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        written |= {name for _, name, _ in TABLE.findall(text)}
        made = TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}{found[3]}", text)
        if made != text:
            stale.append(page.name)
            if "--check" not in arguments:
                page.write_text(made, encoding="utf-8")
    missing = sorted(set(TABLES) - written)
    if missing:
        sys.stderr.write(f"no page shows {', '.join(missing)}\n")
        return 1
    if stale and "--check" in arguments:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run tests/project/docs_tables.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
