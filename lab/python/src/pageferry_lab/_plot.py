"""Figures of sweeps that look like those of the report."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Literal

import matplotlib.ticker
import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from ._looks import Look, looks
from ._spread import interval

#: What the legend says of bars through points.
_INTERVAL = "interval of the median"
_INK, _FAINT, _AXIS, _GRID = "#1d2429", "#5a666e", "#3b464d", "#d9dfe3"
#: Suffixes that a name goes without where its unit is told.
_SUFFIXES = ("_bytes", "_mb_s", "_cycles", "_ns", "_percent", "_us", "_mhz", "_mbit_s")
#: The unit that reports have a quantity in, and what a value is multiplied by.
_REPORTED = {
    "Mbit/s": ("MB/s", 0.125),
    "Mbit/s/%": ("MB/s/%", 0.125),
    "Mbit/CPU": ("MB/s/%", 0.125),
    "us": ("µs", 1.0),
    "ns": ("µs", 1e-3),
}


class ShownFigure(Figure):
    """A figure that a notebook shows, with ``pyplot`` or without."""

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        self.savefig(png, format="png")
        return png.getvalue()

    def _repr_svg_(self) -> str:
        svg = io.StringIO()
        # The same figure is the same text, and its words are text.
        with rc_context({"svg.hashsalt": "pageferry", "svg.fonttype": "none"}):
            self.savefig(svg, format="svg", metadata={"Date": None})
        return svg.getvalue()


def plot(
    frame: pd.DataFrame,
    metric: str | None = None,
    x: str | None = None,
    *,
    title: str | None = None,
    axes: Sequence[Axes] | None = None,
) -> Figure:
    """A metric of a sweep along a setting: a chart for each machine, a line for each kernel and each other setting.

    Colours, marks, dashes and units are those of the report. Both axes are logarithmic, but for one that has a zero or
    what is below. Where there are several seeds, a line goes through their medians; where these differ, a bar goes from
    end to end of an interval that holds the true median in at least 93 of 100 such sets (of fewer than five seeds it is
    their range), and the legend says so.

    Args:
        frame: What :func:`~pageferry_lab.sweep` gave, or some of its rows.
        metric: The column to show; what the experiment is judged by if absent.
        x: The column across; the first setting with numbers if absent.
        title: Above all charts; that of the experiment if absent.
        axes: Where to draw, one for each machine; a new figure if absent.

    Returns:
        The figure, which belongs to nothing: no window, no ``pyplot``. A notebook shows it as it is.

    Raises:
        ValueError: There is no such column, or nothing to draw.
    """
    attrs: dict[str, Any] = frame.attrs
    metric = metric or attrs.get("metric")
    x = x or attrs.get("x")
    for what, column in (("metric", metric), ("x", x)):
        if column is None:
            raise ValueError(f"no `{what}` is given, and the frame does not say one: name a column")
        if column not in frame.columns:
            raise ValueError(f"there is no column `{column}`; there are {', '.join(map(str, frame.columns))}")
        if not pd.api.types.is_numeric_dtype(frame[column]):
            raise ValueError(f"`{column}` has words, expected numbers")
    assert metric is not None and x is not None
    rows = frame.dropna(subset=[metric])
    if rows.empty:
        raise ValueError(f"no run has `{metric}`")
    machines = list(rows["machine"].unique())
    figure = None
    if axes is None:
        figure = ShownFigure(figsize=(min(6.4 * len(machines), 12.8), 4.6), layout="constrained", dpi=110)
        axes = list(np.atleast_1d(figure.subplots(1, len(machines), sharey=True)))
    elif len(axes) < len(machines):
        raise ValueError(f"{len(axes)} axes, expected {len(machines)}: one for each machine")
    lines = _lines(rows, [key for key in attrs.get("vary", []) if key != x and key in rows.columns])
    drawn = looks(list(lines))
    units = attrs.get("units", {})
    (across, across_by), (up, up_by) = (_reported(units.get(column, "")) for column in (x, metric))
    log_x, log_y = (bool((rows[column] > 0).all()) for column in (x, metric))
    for machine, chart in zip(machines, axes, strict=False):
        for name, of in lines.items():
            here = rows[of & (rows["machine"] == machine)]
            values = here[metric].astype("float64").groupby(here[x])
            if len(here):
                places = np.asarray(values.median().index, dtype=float) * across_by
                medians = values.median().to_numpy() * up_by
                ends = np.array([interval(list(of_x)) for _, of_x in values]) * up_by
                _line(chart, places, medians, ends, name, drawn[name])
        _scale(chart, "x", log_x, across == "bytes")
        _scale(chart, "y", log_y, up == "bytes")
        chart.set_title(machine, loc="left", color=_INK, fontsize=10.5, fontweight="bold")
        chart.set_xlabel(_words(x, across, log_x), loc="left", style="italic", color=_AXIS, fontsize=9.5)
        if chart is axes[0]:
            chart.set_ylabel(_words(metric, up, log_y), style="italic", color=_AXIS, fontsize=9.5)
        _dress(chart)
    # Those of one machine may have no run of a line.
    found: dict[Any, Any] = {}
    for chart in axes:
        handles, names = chart.get_legend_handles_labels()
        found |= dict(zip(names, handles, strict=True))
    whole = axes[0].get_figure(root=True)
    assert isinstance(whole, Figure)
    names = [name for name in (*lines, _INTERVAL) if name in found]
    handles = [found[name] for name in names]
    style: dict[str, Any] = {"ncols": 4, "frameon": False, "fontsize": 9.5, "handlelength": 3.6}
    if figure is None:
        axes[0].legend(handles, names, **{**style, "ncols": 1})
        if title:
            whole.suptitle(title, color=_INK, fontsize=13, fontweight="bold")
        return whole
    legend = figure.legend(handles, names, loc="outside upper left", alignment="left", **style)
    legend.set_title(attrs.get("title", "") if title is None else title, FontProperties(size=13, weight="bold"))
    legend.get_title().set_color(_INK)
    return figure


def _lines(rows: pd.DataFrame, others: list[str]) -> dict[str, pd.Series[bool]]:
    """What is a line: the name of each, and which rows are of it."""
    # What is the same in all rows tells nothing apart.
    told = [key for key in ("kernel", *others) if rows[key].nunique() > 1] or ["kernel"]
    lines = {}
    for values, of in rows.groupby(told, sort=False):
        pairs = zip(told, values, strict=True)
        words = [str(value) if key == "kernel" else f"{key.rsplit('.', 1)[-1]} {value}" for key, value in pairs]
        lines[", ".join(words)] = rows.index.isin(of.index)
    return lines


def _line(chart: Axes, places: Any, medians: Any, ends: Any, name: str, look: Look) -> None:
    width = 1.6
    # Ends that read the same are no interval.
    differ = np.array([_number(low) != _number(high) for low, high in ends])
    if differ.any():
        chart.errorbar(
            places[differ],
            medians[differ],
            yerr=np.abs(ends[differ].T - medians[differ]),
            fmt="none",
            ecolor=look.colour,
            elinewidth=1.1,
            capsize=2.5,
            label=_INTERVAL,
        )
    (line,) = chart.plot(
        places,
        medians,
        color=look.colour,
        linewidth=width,
        marker=look.mark,
        markersize=6.5,
        markerfacecolor="white" if look.hollow else look.colour,
        markeredgecolor=look.colour if look.hollow else "white",
        markeredgewidth=1.4 if look.hollow else 0.7,
        label=name,
        zorder=3,
    )
    if look.dash:
        # Those of the report are in pixels, of which it has 96 an inch; these are in widths of the line.
        line.set_dashes([part * 0.75 / width for part in look.dash])


def _scale(chart: Axes, axis: Literal["x", "y"], log: bool, binary: bool) -> None:
    """Equal ratios, with sizes in powers of two and all else in 1, 2 and 5."""
    of = chart.xaxis if axis == "x" else chart.yaxis
    if log:
        (chart.set_xscale if axis == "x" else chart.set_yscale)("log", base=2 if binary else 10)
        if not binary:
            of.set_major_locator(matplotlib.ticker.LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    of.set_minor_locator(matplotlib.ticker.NullLocator())
    of.set_major_formatter(matplotlib.ticker.FuncFormatter(_size if binary else _number))


def _dress(chart: Axes) -> None:
    for side in ("left", "right", "top"):
        chart.spines[side].set_visible(False)
    chart.spines["bottom"].set_color(_INK)
    chart.grid(axis="y", color=_GRID, linewidth=0.8)
    chart.set_axisbelow(True)
    chart.tick_params(axis="both", colors=_FAINT, labelsize=9)
    chart.tick_params(axis="y", length=0)


def _size(value: float, _place: object = None) -> str:
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if value >= unit and value % unit == 0:
            return f"{value / unit:g}{letter}"
    return _number(value)


def _number(value: float, _place: object = None) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 and value == round(value) else f"{value:,.4g}"


def _reported(unit: str) -> tuple[str, float]:
    return _REPORTED.get(unit, ("" if unit == "count" else unit, 1.0))


def _words(column: str, unit: str, log: bool) -> str:
    """What stands beside an axis: a name, a unit, and whether it is logarithmic."""
    name = column
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix) if unit else name
    name = name.removeprefix("machine.").removeprefix("kernel.").replace("_", " ").replace(".", " ")
    return name + (f", {unit}" if unit else "") + (" (log)" if log else "")
