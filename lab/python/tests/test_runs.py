"""Runs, sweeps and their parts; what the command refuses."""

import os
import stat
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import SMALL

import pageferry_lab as lab


def test_a_run_is_a_dictionary() -> None:
    one = lab.run("bw-pipe", machine="xeon-up", kernel="sf_buf", total_bytes="64K", quick=True, seed=3)
    assert (one["experiment"], one["machine"], one["kernel"], one["seed"]) == ("bw-pipe", "xeon-up", "sf_buf", 3)
    assert one["settings"]["total_bytes"] == 65536
    assert one["results"]["bandwidth_mb_s"] > 0 and all(law["held"] for law in one["laws"])
    # A key with points, and whole numbers of all sorts.
    slow = lab.run(
        "bw-pipe", machine="xeon-up", kernel="sf_buf", total_bytes=np.int32(65536), quick=True, seed=3,
        set={"machine.cpu.clock_mhz": 1000.0},
    )  # fmt: skip
    assert slow["results"]["bandwidth_mb_s"] < one["results"]["bandwidth_mb_s"]


def test_a_sweep_has_the_columns_of_the_table_with_types(folder: Path, frame: pd.DataFrame) -> None:
    table = pd.read_csv(folder / "sweep.csv")
    assert list(frame.columns) == list(table.columns) and len(frame) == len(table) == 12
    for column in table.columns:
        assert (frame[column].isna() == table[column].isna()).all(), column
        if pd.api.types.is_numeric_dtype(frame[column]):
            assert np.allclose(frame[column].astype(float), table[column].astype(float), equal_nan=True), column
        else:
            assert (frame[column] == table[column]).all(), column
    assert frame.bandwidth_mb_s.dtype == "float64" and frame["cycles.total"].dtype == "int64"
    assert frame.payload_ok.dtype == bool and frame.payload_ok.all()
    assert frame.seed.dtype == frame.chunk_bytes.dtype == "int64"
    assert frame.attrs["vary"] == ["chunk_bytes"] and frame.attrs["metric"] == "bandwidth_mb_s"
    assert frame.attrs["units"]["bandwidth_mb_s"] == "MB/s" and frame.attrs["units"]["chunk_bytes"] == "bytes"


def test_a_cell_of_a_sweep_is_the_run_alone(frame: pd.DataFrame) -> None:
    one = lab.run("pipe-sizes", machine="today", kernel="sf_buf", quick=True, total_bytes="64K", chunk_bytes="8K")
    [cell] = frame.query("machine == 'today' and kernel == 'sf_buf' and chunk_bytes == 8192").bandwidth_mb_s
    assert cell == one["results"]["bandwidth_mb_s"]


def test_words_vary_and_a_count_may_be_missing() -> None:
    words = lab.sweep("uvm-pipe", quick=True, vary={"send": ["copy", "loan"]}, size_bytes="4K", seed=(1 << 64) - 1)
    assert list(words.send) == ["copy", "loan"] and words.attrs["x"] is None
    assert words.seed.dtype == "uint64" and words.seed[0] == (1 << 64) - 1


def test_progress_is_told_of_each_run(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[lab.Progress] = []
    lab.sweep("bw-pipe", quick=True, kernel=["original", "sf_buf"], total_bytes="64K", jobs=1, progress=told.append)
    assert [(one.done, one.total) for one in told] == [(1, 2), (2, 2)]
    assert told[1].run.startswith("bw-pipe on xeon-up under sf_buf") and told[1].outcome.endswith(" s")
    lab.sweep("bw-pipe", quick=True, total_bytes="64K", progress=True)
    assert capsys.readouterr().err.startswith("1 of 1 runs")


def test_a_call_that_fails_ends_the_command() -> None:
    def stop(_: lab.Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.sweep("pipe-sizes", **{**SMALL, "vary": {"chunk_bytes": "1K..64K:1K"}}, jobs=1, out="out", progress=stop)
    assert not Path("out").exists()
    # What was finished is kept, and gone on with.
    kept: list[str] = []
    frame = lab.sweep("pipe-sizes", **SMALL, out="out", resume=True, progress=lambda one: kept.append(one.outcome))
    assert len(frame) == len(kept) == 12


def test_parts_give_what_one_host_gives(folder: Path, frame: pd.DataFrame) -> None:
    parts = lab.plan("parts", "pipe-sizes", parts=3, **SMALL)
    assert [part.name for part in parts] == ["part-1.toml", "part-2.toml", "part-3.toml"]
    assert [lab.run_part(part, jobs=1).name for part in parts[:2]] == ["part-1.jsonl", "part-2.jsonl"]
    with pytest.raises(lab.CommandError, match="(?s)part 3: it was not run.*1 of 3 parts"):
        lab.collect("parts")
    lab.run_part(parts[2])
    pd.testing.assert_frame_equal(lab.collect("parts", out="all"), frame)
    assert Path("all/sweep.csv").read_bytes() == (folder / "sweep.csv").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"experiment": "bw-pip"}, "there is no experiment `bw-pip`; did you mean `bw-pipe`?"),
        ({"experiment": "bw-pipe", "machine": "xeon-pu"}, "there is no machine `xeon-pu`; did you mean `xeon-up`?"),
        ({"experiment": "bw-pipe", "chunk_byte": 1}, "did you mean `chunk_bytes`?"),
        ({"experiment": "--quick"}, "there is no experiment"),
    ],
)
def test_what_the_command_refuses_is_raised_with_its_message(arguments: dict, problem: str) -> None:
    with pytest.raises(lab.CommandError) as raised:
        lab.run(**arguments)
    assert problem in str(raised.value) and raised.value.code == 2
    assert not str(raised.value).startswith(("pageferry:", "error:"))
    with pytest.raises(lab.CommandError, match="did you mean|there is no"):
        lab.sweep(**arguments)


def test_what_is_no_setting_is_a_type_error() -> None:
    for value in ([1, 2], 1.5, True, None):
        with pytest.raises(TypeError, match="a setting is a whole number or a word"):
            lab.run("bw-pipe", chunk_bytes=value)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_broken_law_is_an_error_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (
        "import sys; print('pageferry: bw-pipe on x under y: cycles add up: 1 too many', file=sys.stderr); sys.exit(1)"
    )
    monkeypatch.setenv("PAGEFERRY", script(tmp_path / "broken", broken))
    with pytest.raises(lab.LawBroken, match="^bw-pipe on x under y: cycles add up"):
        lab.run("bw-pipe")
    killed = "import os; os.kill(os.getpid(), 9)"
    monkeypatch.setenv("PAGEFERRY", script(tmp_path / "killed", killed))
    with pytest.raises(lab.CommandError, match="ended with -9"):
        lab.run("bw-pipe")


def test_the_command_is_found_where_it_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = script(tmp_path / "pageferry", "")
    monkeypatch.setenv("PAGEFERRY", here)
    assert lab.command() == here
    monkeypatch.setenv("PAGEFERRY", str(tmp_path / "nothing"))
    with pytest.raises(lab.CommandNotFound, match="PAGEFERRY is .*nothing"):
        lab.command()
    monkeypatch.delenv("PAGEFERRY")
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    assert lab.command() == here
    # Beside Python, as in a virtual environment.
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert lab.command() == here
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(lab.CommandNotFound, match="cargo install"):
        lab.command()
