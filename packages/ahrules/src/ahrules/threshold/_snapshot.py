"""The state of an evaluator as bytes.

Law: lines of JSON. The first is the header (format, version, company, rules), then one line a
series, then the trailer, which has the number of series and the CRC-32 of all bytes before it.
What does not hold together is refused whole. A time that is not yet is null. When a series was
heard and when its rules came is not kept: the first tick after a restart is a start, and later.
"""

import json
import math
import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

from attrs import frozen

from ahrules._arguments import expect
from ahrules._reading import is_unicode, shown
from ahrules.errors import SnapshotError
from ahrules.threshold._rules import Compiled
from ahrules.threshold._series import Series
from ahrules.threshold._tracked import NEVER, Tracked
from ahrules.threshold._watch import REMINDERS_MAX, AlertState, Watch
from ahwire.errors import DecodeError
from ahwire.hub import ThresholdRule

_FORMAT: Final = "ahrules.threshold"
_VERSION: Final = 1
_SERIES_FIELDS: Final = 7
_WATCH_FIELDS: Final = 8
_SERIES_WATCHES: Final = 4
_HEAD_RULES: Final = 100
_HELD: Final = frozenset({AlertState.PENDING, AlertState.FIRING, AlertState.KEPT})
_load: Final = json.JSONDecoder().decode
_dump: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _time(instant: float) -> float | None:
    return None if instant == NEVER else instant


def _watch_row(watch: Watch) -> list[Any]:
    return [
        watch.rule.rule.rule_id,
        int(watch.state),
        watch.since,
        watch.started_at,
        watch.reminders,
        watch.value,
        watch.peak,
        None if watch.window is None else watch.window.points(),
    ]


def _series_row(tracked: Tracked) -> list[Any]:
    series = tracked.series
    return [
        tracked.server,
        series.name,
        [text for pair in series.labels.items() for text in pair],
        _time(tracked.last_ts),
        tracked.last_value,
        tracked.is_short,
        [_watch_row(watch) for watch in tracked.watches],
    ]


def encode(
    company_id: str,
    rules: Iterable[ThresholdRule],
    series: Iterable[Tracked],
    *,
    series_max: int,
    epoch: Callable[[], int],
) -> Iterator[bytes]:
    """Yield the lines in parts of `series_max` series, each made when it is asked for.

    Series that many rules watch make parts of fewer.

    Raises:
        SnapshotError: `epoch` is not what it was at the first part.
    """
    if series_max < 1:
        raise ValueError(f"series_max is {series_max}; a part has at least one series")
    began = epoch()
    count = crc = 0
    for head in _head(company_id, rules):
        part = head.encode()
        crc = zlib.crc32(part, crc)
        yield part
        _expect_same(epoch(), began)
    lines: list[str] = []
    room = series_max
    for tracked in series:
        lines.append(_dump(_series_row(tracked)))
        count += 1
        room -= max(1, len(tracked.watches) // _SERIES_WATCHES)
        if room <= 0:
            room = series_max
            part = _joined(lines)
            crc = zlib.crc32(part, crc)
            lines = []
            yield part
            _expect_same(epoch(), began)
    part = _joined(lines)
    crc = zlib.crc32(part, crc)
    yield part + _joined([_dump({"series": count, "crc32": crc})])


def _head(company_id: str, rules: Iterable[ThresholdRule]) -> Iterator[str]:
    """Yield the first line in parts of `_HEAD_RULES` rules, but for the end of the last one."""
    header = {"format": _FORMAT, "version": _VERSION, "company_id": company_id, "rules": []}
    opened = _dump(header).removesuffix("]}")
    texts: list[str] = []
    for number, rule in enumerate(rules):
        if number and number % _HEAD_RULES == 0:
            yield opened + ",".join(texts)
            opened, texts = ",", []
        texts.append(_rule_text(rule))
    yield opened + ",".join(texts) + "]}\n"


def _rule_text(rule: ThresholdRule) -> str:
    data = rule.to_json()
    # Many rules of every company are most of a small company's snapshot: what is ASCII is as
    # `_dump` would write it, and is not read and written again.
    return data.decode() if data.isascii() else _dump(json.loads(data))


def _expect_same(epoch: int, began: int) -> None:
    if epoch != began:
        raise SnapshotError("the rules were changed while the snapshot was made; begin anew")


def _joined(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@frozen(kw_only=True)
class Row:
    """One series of a snapshot, its types and ranges checked."""

    server: str
    series: Series
    last_ts: float
    last_value: float
    is_short: bool
    watches: Sequence[Sequence[Any]]

    def tracked(self, rules: Mapping[str, Compiled], points_max: int) -> Tracked:
        """Return the series as it was, watched by these rules."""
        tracked = Tracked(self.server, self.series)
        tracked.last_ts, tracked.last_value = self.last_ts, self.last_value
        tracked.is_short = self.is_short
        for rule_id, state, since, started, reminders, value, peak, points in self.watches:
            rule = rules[rule_id]
            watch = Watch(rule, rule.window(points_max), NEVER)
            watch.state, watch.since, watch.started_at = AlertState(state), since, started
            watch.reminders, watch.value, watch.peak = reminders, value, peak
            if watch.window is not None:
                watch.window.fill(points or ())
            tracked.watches.append(watch)
        return tracked


@frozen(kw_only=True)
class Document:
    """A snapshot that was read."""

    company_id: str
    rules: tuple[ThresholdRule, ...]
    rows: tuple[Row, ...]


def _refuse(where: str, reason: str) -> NoReturn:
    raise SnapshotError(f"the snapshot is damaged: {where} {reason}; start from an older one")


def read_document(data: bytes) -> Document:
    """Read a snapshot whole.

    Raises:
        SnapshotError: It was cut, changed or is of another version; the message says where.
        TypeError: It is no bytes.
    """
    expect("data", data, (bytes, bytearray), "give the bytes that snapshot() returned")
    lines = data.split(b"\n")
    if len(lines) < 3 or lines[-1]:
        _refuse("it", f"has no whole trailer ({len(data)} bytes); it was cut or is something else")
    trailer = _object(lines[-2], "the trailer")
    header = _object(lines[0], "the header")
    if header.get("format") != _FORMAT:
        _refuse("the header", f"names the format {shown(header.get('format'))}, not {_FORMAT!r}")
    if header.get("version") != _VERSION:
        raise SnapshotError(
            f"the snapshot has version {shown(header.get('version'))}, and this release reads "
            f"{_VERSION}; read it with the release that wrote it"
        )
    body = data[: len(data) - len(lines[-2]) - 1]
    if zlib.crc32(body) != trailer.get("crc32"):
        _refuse("it", f"has the CRC-32 {zlib.crc32(body)}, not {shown(trailer.get('crc32'))}")
    if len(lines) - 3 != trailer.get("series"):
        _refuse("it", f"has {len(lines) - 3} series, not {shown(trailer.get('series'))}")
    company_id = header.get("company_id")
    if not isinstance(company_id, str):
        _refuse("the header", "has no company_id")
    rules = _rules(header.get("rules"))
    by_id = {rule.rule_id: rule for rule in rules}
    if len(by_id) != len(rules):
        _refuse("the header", "has a rule twice")
    rows = [_Reader(number, by_id).row(line) for number, line in enumerate(lines[1:-2], start=2)]
    if len({(row.server, row.series.key) for row in rows}) != len(rows):
        _refuse("it", "has a series twice")
    return Document(company_id=company_id, rules=rules, rows=tuple(rows))


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        found = _load(line.decode())
    except (ValueError, RecursionError):
        _refuse(where, "is no JSON")
    if not isinstance(found, dict):
        _refuse(where, "is no object")
    return found


def _rules(items: object) -> tuple[ThresholdRule, ...]:
    if not isinstance(items, list):
        _refuse("the header", "has no rules")
    rules = []
    for index, item in enumerate(items):
        try:
            rules.append(ThresholdRule.from_json(json.dumps(item).encode()))
        except (DecodeError, RecursionError) as error:
            _refuse(f"rules[{index}]", f"of the header cannot be read ({error})")
    return tuple(rules)


class _Reader:
    """Checks one line of a series."""

    def __init__(self, number: int, rules: Mapping[str, ThresholdRule]) -> None:
        self._line = number
        self._rules = rules

    def row(self, line: bytes) -> Row:
        try:
            fields = _load(line.decode())
        except (ValueError, RecursionError):
            self._refuse("", "is no JSON")
        if not isinstance(fields, list) or len(fields) != _SERIES_FIELDS:
            self._refuse("", f"is no array of {_SERIES_FIELDS}")
        server, name, labels, last_ts, last_value, is_short, watches = fields
        for text, where in ((server, "server"), (name, "name")):
            if not isinstance(text, str):
                self._refuse(where, f"is {shown(text)}, no string")
            self._text(text, where)
        if not isinstance(is_short, bool):
            self._refuse("is_short", f"is {shown(is_short)}, neither true nor false")
        if not isinstance(watches, list):
            self._refuse("watches", "is no array")
        row = Row(
            server=server,
            series=Series(name=name, labels=self._labels(labels)),
            last_ts=self._time(last_ts, "last_ts"),
            last_value=self._number(last_value, "last_value"),
            is_short=is_short,
            watches=[self._watch(watch, f"watches[{at}]") for at, watch in enumerate(watches)],
        )
        self._fits(row)
        return row

    def _fits(self, row: Row) -> None:
        """Refuse watches that this series cannot have."""
        seen: set[str] = set()
        for at, watch in enumerate(row.watches):
            where = f"watches[{at}]"
            rule_id, metric = watch[0], self._rules[watch[0]].metric
            if rule_id in seen:
                self._refuse(where, f"is of the rule {rule_id!r}, which watches it already")
            seen.add(rule_id)
            if metric != row.series.name:
                self._refuse(where, f"is of the rule {rule_id!r}, which is on {shown(metric)}")
            if row.last_ts == NEVER and watch[1] in _HELD:
                self._refuse(where, "has a condition that held, and the series has no point")
            points = watch[-1]
            if points and points[len(points) // 2 - 1] > row.last_ts:
                self._refuse(where, "has a point that is newer than the newest of the series")

    def _labels(self, texts: object) -> dict[str, str]:
        if not isinstance(texts, list) or len(texts) % 2 or not set(map(type, texts)) <= {str}:
            self._refuse("labels", "are no names and as many values")
        labels = dict(zip(texts[::2], texts[1::2], strict=True))
        if len(labels) * 2 != len(texts):
            self._refuse("labels", "have a name twice")
        for text in texts:
            self._text(text, "labels")
        return labels

    def _watch(self, fields: object, where: str) -> Sequence[Any]:
        if not isinstance(fields, list) or len(fields) != _WATCH_FIELDS:
            self._refuse(where, f"is no array of {_WATCH_FIELDS}")
        rule_id, state, since, started_at, reminders, value, peak, points = fields
        if not isinstance(rule_id, str) or rule_id not in self._rules:
            self._refuse(f"{where}.rule_id", f"is {shown(rule_id)}, which is no rule of the header")
        if type(state) is not int or not 0 <= state < len(AlertState):
            self._refuse(
                f"{where}.state", f"is {shown(state)}; states are 0 to {len(AlertState) - 1}"
            )
        if type(reminders) is not int or not 0 <= reminders <= REMINDERS_MAX:
            self._refuse(f"{where}.reminders", f"is {shown(reminders)}, no count of reminders")
        if points is not None:
            self._points(points, f"{where}.points")
        if state in _HELD and (value is None or peak is None):
            name = "value" if value is None else "peak"
            self._refuse(f"{where}.{name}", "is null although the condition held")
        return (
            rule_id,
            state,
            self._number(since, f"{where}.since"),
            self._number(started_at, f"{where}.started_at"),
            reminders,
            None if value is None else self._number(value, f"{where}.value"),
            None if peak is None else self._number(peak, f"{where}.peak"),
            points,
        )

    def _text(self, text: str, where: str) -> None:
        if not is_unicode(text):
            self._refuse(where, f"holds half a surrogate pair in {shown(text)}")

    def _points(self, points: object, where: str) -> None:
        if not isinstance(points, list) or len(points) % 2:
            self._refuse(where, "is no array of times and as many values")
        # In one go, for there are many; then one by one, to say which.
        if not set(map(type, points)) <= {float} or not all(map(math.isfinite, points)):
            for number in points:
                self._number(number, where)
        half = len(points) // 2
        if not all(map(operator.lt, points[: half - 1], points[1:half])):
            self._refuse(where, "has times that do not rise")

    def _number(self, number: object, where: str) -> float:
        if type(number) is float and math.isfinite(number):
            return number
        if type(number) not in (int, float):
            self._refuse(where, f"is {shown(number)}, no number")
        try:
            found = float(number)  # type: ignore[arg-type]  # its type was just asked
        except OverflowError:
            self._refuse(where, "is an integer that no double holds")
        if not math.isfinite(found):
            self._refuse(where, f"is {found}, which is not finite")
        return found

    def _time(self, number: object, where: str) -> float:
        return NEVER if number is None else self._number(number, where)

    def _refuse(self, where: str, reason: str) -> NoReturn:
        _refuse(f"line {self._line}{f', {where},' if where else ''}", reason)
