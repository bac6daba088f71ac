"""Figures: what is drawn, and that it looks as in the report."""

import re
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import pageferry_lab as lab
from pageferry_lab import _looks


def words(figure: Figure) -> list[str]:
    [legend] = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_a_chart_for_each_machine_and_a_line_for_each_kernel(frame: pd.DataFrame) -> None:
    figure = lab.plot(frame)
    left, right = figure.axes
    assert [chart.get_title("left") for chart in figure.axes] == ["xeon-up", "today"]
    assert words(figure) == ["original", "sf_buf"] and figure.legends[0].get_title().get_text() == frame.attrs["title"]
    assert left.get_xlabel() == "chunk, bytes (log)" and left.get_ylabel() == "bandwidth, MB/s (log)"
    original, sf_buf = right.get_lines()
    assert to_hex(original.get_color()) == "#8f959a" and to_hex(sf_buf.get_color()) == "#0072b2"
    assert original.get_marker() == "X" and original.is_dashed() and not sf_buf.is_dashed()
    expected = frame.query("machine == 'today' and kernel == 'sf_buf'")
    assert list(sf_buf.get_xdata()) == list(expected.chunk_bytes)
    assert list(sf_buf.get_ydata()) == list(expected.bandwidth_mb_s)
    figure.savefig("figure.png")
    assert {"4K", "8K", "16K"} <= {text.get_text() for text in left.get_xticklabels()}
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert "sf_buf</text>" in figure._repr_svg_() and lab.plot(frame)._repr_svg_() == lab.plot(frame)._repr_svg_()


def test_other_settings_are_lines_and_seeds_are_a_bar(frame: pd.DataFrame) -> None:
    two = pd.concat([frame.assign(send="copy"), frame.assign(send="loan")], ignore_index=True)
    spread = pd.concat([two, two.assign(seed=2, bandwidth_mb_s=two.bandwidth_mb_s * 2)], ignore_index=True)
    spread.attrs = {**frame.attrs, "vary": ["chunk_bytes", "send"]}
    figure = lab.plot(spread, "bandwidth_mb_s", "chunk_bytes", title="Mine")
    assert words(figure)[0] == "original, send copy" and len(words(figure)) == 5
    assert words(figure)[-1] == "interval of the median"
    drawn = {(line.get_color(), line.get_marker(), line.get_markerfacecolor()) for line in figure.axes[0].get_lines()}
    assert len(drawn) >= 4, "no two look the same"
    assert len(figure.axes[0].containers) == 4, "a bar of errors for each line"
    assert figure.legends[0].get_title().get_text() == "Mine"


def test_a_bar_is_the_interval_of_the_median_and_not_there_where_seeds_agree(frame: pd.DataFrame) -> None:
    seeds = [frame.assign(seed=seed) for seed in range(1, 10)]
    alike = pd.concat(seeds, ignore_index=True)
    alike.attrs = frame.attrs
    assert not lab.plot(alike).axes[0].containers and "interval of the median" not in words(lab.plot(alike))
    factors = alike.seed.where(alike.machine == "today", 1)
    differ = alike.assign(bandwidth_mb_s=alike.bandwidth_mb_s * factors)
    differ.attrs = frame.attrs
    left, right = lab.plot(differ).axes
    assert not left.containers and len(right.containers) == 2
    # Of nine values the least and the greatest are left out.
    one = frame.query("machine == 'today' and kernel == 'original'").iloc[0]
    [bars] = right.containers[0].lines[2]
    low, high = bars.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((2 * one.bandwidth_mb_s, 8 * one.bandwidth_mb_s))


def test_what_has_a_zero_is_on_an_axis_of_equal_steps(frame: pd.DataFrame) -> None:
    figure = lab.plot(frame, "page_faults")
    assert figure.axes[0].get_yscale() == "linear" and figure.axes[0].get_ylabel() == "page faults"
    figure.savefig("figure.svg")


def test_it_is_drawn_where_one_says(frame: pd.DataFrame) -> None:
    whole = Figure()
    charts = whole.subplots(1, 3)
    assert lab.plot(frame, axes=list(charts)) is whole and not charts[2].lines
    with pytest.raises(ValueError, match="1 axes, expected 2"):
        lab.plot(frame, axes=[charts[0]])


def test_what_cannot_be_drawn_is_refused(frame: pd.DataFrame) -> None:
    for arguments, problem in [
        ({"metric": "bandwidth"}, "there is no column `bandwidth`; there are experiment, machine"),
        ({"x": "kernel"}, "`kernel` has words, expected numbers"),
    ]:
        with pytest.raises(ValueError, match=re.escape(problem)):
            lab.plot(frame, **arguments)
    with pytest.raises(ValueError, match="no run has"):
        lab.plot(frame[:0])
    bare = frame.copy()
    bare.attrs = {}
    with pytest.raises(ValueError, match="name a column"):
        lab.plot(bare)


def test_what_is_the_same_everywhere_is_not_in_a_name(frame: pd.DataFrame) -> None:
    some = frame[frame.kernel == "sf_buf"].assign(send="loan")
    some.attrs = {**frame.attrs, "vary": ["chunk_bytes", "send"]}
    assert words(lab.plot(some)) == ["sf_buf"]


def test_looks_are_those_of_the_report() -> None:
    source = Path(__file__).parents[2] / "report/src/looks.rs"
    if not source.exists():
        pytest.skip("no checkout: the looks of the report are not here")
    text = source.read_text()
    rows = re.findall(r'series\("([^"]*)", "([^"]*)", Mark::(\w+), "([^"]*)", "([^"]*)"\)', text)
    assert [tuple(of) for of in (*_looks.SERIES, *_looks.OTHERS)] == rows
    light = dict(re.findall(r'\("([^"]+)", "(#\w+)", "#\w+"\)', text))
    assert {name: light[name] for name in _looks.COLOURS} == _looks.COLOURS
