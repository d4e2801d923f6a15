"""Charts of one server, drawn as SVG by pygal, without scripts or anything from outside."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import attrs

from ah_server.console._pygal import XY, Style, etree
from ahcollector.store import RangeSeries

SPANS: Mapping[str, int] = MappingProxyType(
    {"5m": 300, "hour": 3600, "day": 86_400, "week": 604_800}
)
"""The spans a page offers, in seconds."""

DEFAULT_SPAN = "hour"
POINTS_PER_CHART = 120
_LINES_MAX = 8
_LINE_POINTS_MIN = 3
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
        line_label: the label that tells its lines apart; empty: one line.
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


def step_seconds(span_seconds: int) -> int:
    """The step that gives a chart its points; whole seconds, at least one."""
    return max(1, math.ceil(span_seconds / POINTS_PER_CHART))


def draw(
    spec: ChartSpec,
    series: Sequence[RangeSeries],
    *,
    start_ms: int,
    end_ms: int,
    step_ms: int,
    small: bool = False,
) -> bytes:
    """Draws a chart over [start, end]; a gap in the samples is a gap in the line.

    Args:
        spec: what is drawn.
        series: the lines; eight at most are drawn, in order of their names.
        start_ms: left end, Unix milliseconds.
        end_ms: right end.
        step_ms: distance of two points where there is no gap.
        small: only the line, for a row of a table.

    Returns:
        An SVG document.
    """
    chart = XY(
        style=_STYLE,
        js=[],
        # One sample makes no line yet, and must be seen all the same.
        show_dots=max((len(one.points) for one in series), default=0) < _LINE_POINTS_MIN,
        dots_size=3,
        xrange=(start_ms / 1000, end_ms / 1000),
        range=(0, 100) if spec.percent else None,
        no_data_text="no samples" if small else "No samples in this time",
        allow_interruptions=True,
        **(_SMALL if small else _large(spec)),
    )
    if not small and any(one.points for one in series):  # an empty chart has no axes to label
        chart.x_labels = [start_ms / 1000 + (end_ms - start_ms) / 4000 * part for part in range(5)]
        chart.y_labels = [0, 25, 50, 75, 100] if spec.percent else None
        chart.x_value_formatter = _TimeFormatter("%H:%M" if end_ms - start_ms <= _DAYS else "%d %b")
    shown = sorted(series, key=lambda one: _line_name(spec, one))
    for one in shown[:_LINES_MAX]:
        chart.add(_line_name(spec, one), _with_gaps(one.points, step_ms), allow_interruptions=True)
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
    {
        "width": 320,
        "height": 60,
        "margin": 2,
        "show_legend": False,
        "show_x_labels": False,
        "show_y_labels": False,
        "show_y_guides": False,
    }
)


def _large(spec: ChartSpec) -> Mapping[str, Any]:
    return {
        "width": 640,
        "height": 260,
        "title": f"{spec.title} ({spec.unit})" if spec.unit else spec.title,
        "show_legend": bool(spec.line_label),
        "legend_at_bottom": True,
        "truncate_legend": 32,
    }


def _line_name(spec: ChartSpec, series: RangeSeries) -> str:
    return dict(series.labels).get(spec.line_label, spec.title) if spec.line_label else spec.title


def _with_gaps(
    points: Sequence[tuple[int, float]], step_ms: int
) -> list[tuple[float, float | None]]:
    drawn: list[tuple[float, float | None]] = []
    last_ms = None
    for at_ms, value in points:
        # More than two steps without a sample is silence, and silence must not look like a line.
        if last_ms is not None and at_ms - last_ms > max(2 * step_ms, 5_000):
            drawn.append(((last_ms + at_ms) / 2000, None))
        drawn.append((at_ms / 1000, value))
        last_ms = at_ms
    return drawn


@attrs.frozen
class _TimeFormatter:
    _form: str

    def __call__(self, at_seconds: float) -> str:
        return datetime.fromtimestamp(at_seconds, UTC).strftime(self._form)
