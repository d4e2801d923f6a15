"""Charts of one server, drawn as SVG by pygal, without scripts or anything from outside."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import attrs

from ah_server.console._order import natural
from ah_server.console._pygal import XY, Style, etree
from ahcollector.store import RangeSeries

SPANS: Mapping[str, int] = MappingProxyType(
    {"5m": 300, "hour": 3600, "day": 86_400, "week": 604_800}
)
"""The spans a page offers, in seconds."""

DEFAULT_SPAN = "hour"
POINTS_PER_CHART = 120
_LINES_MAX = 8
_TICKS_MAX = 6
_TICK_SECONDS = (60, 300, 600, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 2 * 86_400)
_STYLE = Style(
    background="transparent",
    plot_background="transparent",
    foreground="#51606f",
    foreground_strong="#1d2733",
    foreground_subtle="#c6d0da",
    colors=("#0b6bcb", "#c2410c", "#15803d", "#7c3aed", "#b91c1c", "#0e7490", "#a16207", "#475569"),
    font_family="system-ui, sans-serif",
    label_font_size=13,
    legend_font_size=13,
    title_font_size=16,
    major_label_font_size=13,
    stroke_width=2.0,
    no_data_font_size=16,
    guide_stroke_color="#e3e9ef",
    guide_stroke_dasharray="1,0",
    major_guide_stroke_color="#e3e9ef",
    major_guide_stroke_dasharray="1,0",
)


@attrs.frozen(kw_only=True)
class ChartSpec:
    """One chart of a server page.

    Attributes:
        slug: its name in the address.
        title: its name for people.
        metric: the stored metric it draws.
        line_label: the label that tells its lines apart; empty: all labels do.
        unit: the unit of its axis.
        percent: whether the axis runs from 0 to 100.
    """

    slug: str
    title: str
    metric: str
    line_label: str = ""
    unit: str = ""
    percent: bool = False


CHARTS: tuple[ChartSpec, ...] = (
    ChartSpec(slug="cpu", title="CPU", metric="cpu_usage_percent", unit="%", percent=True),
    ChartSpec(slug="memory", title="Memory", metric="memory_used_percent", unit="%", percent=True),
    ChartSpec(
        slug="disk",
        title="Disk",
        metric="disk_used_percent",
        line_label="mount",
        unit="%",
        percent=True,
    ),
)


def chart_of(metric: str) -> ChartSpec:
    """The chart of a metric that has none of its own: a line for each of its series."""
    return ChartSpec(slug=metric, title=metric, metric=metric)


def step_seconds(span_seconds: int, *, least: int = 1) -> int:
    """The step that gives a chart its points, or fewer of them where the store's `least` is more.

    Whole seconds, as `least` is.
    """
    return max(least, math.ceil(span_seconds / POINTS_PER_CHART))


def draw(
    spec: ChartSpec,
    series: Sequence[RangeSeries],
    *,
    start_ms: int,
    end_ms: int,
    gap_ms: int,
    small: bool = False,
) -> bytes:
    """Draws a chart over [start, end]; a gap in the samples is a gap in the line.

    Args:
        spec: what is drawn.
        series: the lines; eight at most are drawn, in order of their names.
        start_ms: left end, Unix milliseconds.
        end_ms: right end.
        gap_ms: two samples further apart than this are not joined.
        small: only the line, for a row of a table.

    Returns:
        An SVG document.
    """
    empty = not any(one.points for one in series)
    chart = XY(
        style=_STYLE,
        js=[],
        show_dots=False,
        dots_size=2,
        xrange=(start_ms / 1000, end_ms / 1000),
        range=(0, 100) if spec.percent else None,
        no_data_text="no samples" if small else "No samples in this time",
        allow_interruptions=True,
        **(_SMALL if small else _large(spec, legend=len(series) > 1 or bool(spec.line_label))),
        # Without samples there is nothing that axes could say.
        **(_BARE if empty or small else {}),
    )
    if not small and not empty:
        chart.x_labels = _ticks(start_ms // 1000, end_ms // 1000)
        chart.y_labels = [0, 25, 50, 75, 100] if spec.percent else None
        chart.x_value_formatter = _TimeFormatter("%H:%M" if end_ms - start_ms <= _DAYS else "%d %b")
    shown = sorted(series, key=lambda one: natural(_line_name(spec, one)))
    for one in shown[:_LINES_MAX]:
        points = _with_gaps(one.points, gap_ms)
        chart.add(
            _line_name(spec, one),
            points,
            allow_interruptions=True,
            # A sample without neighbours makes no line, and must be seen all the same.
            show_dots=_has_lone_points(points),
        )
    return _without_scripts(chart.render_tree())


def _without_scripts(root: Any) -> bytes:
    """Pygal writes its settings into every chart as a script, which no chart here needs."""
    for parent in list(root.iter()):
        for child in list(parent):
            if isinstance(child.tag, str) and child.tag.rsplit("}")[-1] == "script":
                parent.remove(child)
    drawn = etree.tostring(root, encoding="utf-8")
    assert isinstance(drawn, bytes)
    return drawn


_DAYS = 2 * 86_400_000
_SMALL: Mapping[str, Any] = MappingProxyType(
    {"width": 320, "height": 60, "margin": 2, "show_legend": False}
)
_BARE: Mapping[str, Any] = MappingProxyType(
    {"show_x_labels": False, "show_y_labels": False, "show_y_guides": False}
)


def _large(spec: ChartSpec, *, legend: bool) -> Mapping[str, Any]:
    return {
        "width": 640,
        "height": 260,
        "title": f"{spec.title} ({spec.unit})" if spec.unit else spec.title,
        "show_legend": legend,
        "legend_at_bottom": True,
        "truncate_legend": 32,
    }


def _ticks(start: int, end: int) -> list[int]:
    """Round times inside the chart, not more than fit."""
    step = next(
        (step for step in _TICK_SECONDS if (end - start) / step <= _TICKS_MAX), _TICK_SECONDS[-1]
    )
    return list(range(-(-start // step) * step, end + 1, step))


def _line_name(spec: ChartSpec, series: RangeSeries) -> str:
    labels = dict(series.labels)
    if spec.line_label:
        return labels.get(spec.line_label, spec.title)
    own = [value for name, value in labels.items() if name not in _TENANT_LABELS]
    return ", ".join(own) or spec.title


_TENANT_LABELS = frozenset({"__name__", "company_id", "server_id"})


def _with_gaps(
    points: Sequence[tuple[int, float]], gap_ms: int
) -> list[tuple[float, float | None]]:
    drawn: list[tuple[float, float | None]] = []
    last_ms = None
    for at_ms, value in points:
        if last_ms is not None and at_ms - last_ms > gap_ms:
            # Silence must not look like a line.
            drawn.append(((last_ms + at_ms) / 2000, None))
        drawn.append((at_ms / 1000, value))
        last_ms = at_ms
    return drawn


def _has_lone_points(points: Sequence[tuple[float, float | None]]) -> bool:
    values = [None, *(value for _, value in points), None]
    return any(
        value is not None and before is None and after is None
        for before, value, after in zip(values, values[1:], values[2:], strict=False)
    )


@attrs.frozen
class _TimeFormatter:
    _form: str

    def __call__(self, at_seconds: float) -> str:
        return datetime.fromtimestamp(at_seconds, UTC).strftime(self._form)
