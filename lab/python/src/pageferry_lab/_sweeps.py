"""Runs as dictionaries, sweeps as data frames, and the parts of a sweep."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ._command import Told, call

#: A setting: a number, or a word, or a number with K, M or G behind it.
Value = int | str
#: A name of what is built in, or a file that ends in ``.toml``.
Name = str | os.PathLike[str]
Names = Name | Sequence[Name]
#: What a setting takes in turn: values, or what ``--vary`` has (``"4K..256K:*2"``).
Values = Iterable[Value] | str


def run(
    experiment: Name,
    *,
    machine: Name | None = None,
    kernel: Name | None = None,
    set: Mapping[str, Value] | None = None,
    seed: int = 1,
    quick: bool = False,
    **settings: Value,
) -> dict[str, Any]:
    """One run of an experiment on a machine under a kernel.

    Args:
        experiment: Its name, or a file.
        machine: The machine; the first that the experiment names if absent.
        kernel: The kernel, likewise.
        set: Settings whose keys are no words of Python: ``{"machine.cpu.clock_mhz": 3000}``.
        seed: What the payload is made from.
        quick: The experiment's short form.
        settings: More settings: ``total_bytes="1M"``.

    Returns:
        What ``pageferry run --json`` prints: ``results``, ``counters``, ``cycles`` by cause, ``hardware``, ``laws``,
        ``settings``, and what was run.

    Raises:
        CommandError: Something of this cannot be run; the message says what was expected.
        LawBroken: A law does not hold.
    """
    arguments = ["run", _word(experiment), "--json", "--seed", str(seed)]
    arguments += _one("--machine", machine) + _one("--kernel", kernel)
    for key, value in {**(set or {}), **settings}.items():
        arguments += ["--set", f"{key}={_written_out(_plain(value))}"]
    if quick:
        arguments.append("--quick")
    result: dict[str, Any] = json.loads(call(arguments))
    return result


def sweep(
    experiment: Name,
    *,
    machine: Names | None = None,
    kernel: Names | None = None,
    vary: Mapping[str, Values] | None = None,
    set: Mapping[str, Value] | None = None,
    repeat: int = 1,
    seed: int = 1,
    quick: bool = False,
    metric: str | None = None,
    jobs: int = 0,
    out: Name | None = None,
    resume: bool = False,
    progress: Told = False,
    **settings: Value,
) -> pd.DataFrame:
    """One experiment over the product of machines, kernels, values of settings, and seeds.

    Args:
        experiment: Its name, or a file.
        machine: One machine or several: names, or files.
        kernel: One kernel or several.
        vary: What settings take in turn: ``{"chunk_bytes": [4096, 65536], "send": "copy,loan"}``, or ranges
            (``"4K..256K:*2"``).
        set: What is set in all runs, where the key is no word of Python.
        repeat: Each run so many times, each with a seed of its own, and perturbed: where the kernel's structures lie,
            which frames are free, the phase of the clock.
        seed: The first seed.
        quick: The experiment's short form.
        metric: What :func:`plot` and the report show; what the experiment is judged by if absent.
        jobs: Threads of this host; 0 means one for each core.
        out: A folder that keeps all that the command writes: ``sweep.csv``, records, a report with curves.
        resume: Go on with what an interrupted sweep left beside ``out``.
        progress: ``True`` says on standard error how far it is; or a function that is called after each run.
        settings: What is set in all runs.

    Returns:
        The columns of ``sweep.csv``, a row for each run. What an experiment measures is ``float64``, counts and cycles
        are whole numbers (``Int64`` where some runs have none), ``payload_ok`` is ``bool``. ``frame.attrs`` says what
        varies, which metric is shown, and the units.

    Raises:
        CommandError: Something of this cannot be run; nothing was.
        LawBroken: A law does not hold in a run. With ``out``, all results are kept there.
    """
    arguments = _sweep_arguments(
        experiment, machine, kernel, vary, {**(set or {}), **settings}, repeat, seed, quick, metric
    )
    arguments += ["--jobs", str(jobs)]
    if out is not None:
        arguments += ["--out", _word(out)] + (["--resume"] if resume else [])
        call(arguments, progress)
        return read(out)
    with tempfile.TemporaryDirectory(prefix="pageferry-") as folder:
        call([*arguments, "--out", f"{folder}/sweep"], progress)
        return read(f"{folder}/sweep")


def plan(
    folder: Name,
    experiment: Name,
    *,
    parts: int = 8,
    machine: Names | None = None,
    kernel: Names | None = None,
    vary: Mapping[str, Values] | None = None,
    set: Mapping[str, Value] | None = None,
    repeat: int = 1,
    seed: int = 1,
    quick: bool = False,
    metric: str | None = None,
    **settings: Value,
) -> list[Path]:
    """Writes a sweep down in parts that other hosts can run; all else is as for :func:`sweep`.

    Args:
        folder: Where the parts go; it is new, empty, or has a plan in it.
        parts: So many, or as many as there are runs.

    Returns:
        The files of the parts, each of which needs no other.
    """
    arguments = _sweep_arguments(
        experiment, machine, kernel, vary, {**(set or {}), **settings}, repeat, seed, quick, metric
    )
    call([*arguments, "--plan", _word(folder), "--parts", str(parts)])
    found = Path(folder).glob("part-*.toml")
    return sorted(found, key=lambda path: int(path.stem.removeprefix("part-")))


def run_part(part: Name, *, jobs: int = 0, progress: Told = False) -> Path:
    """Makes the runs of a part of a sweep.

    Args:
        part: A file that :func:`plan` wrote.
        jobs: Threads of this host; 0 means one for each core.
        progress: As for :func:`sweep`.

    Returns:
        The file of its records, beside the part.
    """
    call(["sweep", "run", _word(part), "--jobs", str(jobs)], progress)
    return Path(part).with_suffix(".jsonl")


def collect(folder: Name, *, out: Name | None = None) -> pd.DataFrame:
    """Puts the records of all parts together.

    Args:
        folder: What :func:`plan` wrote, with the records of its parts.
        out: A folder that keeps all that one host would have written.

    Returns:
        As :func:`sweep`.

    Raises:
        CommandError: Parts are missing, damaged, or of another version; the message names each.
    """
    if out is not None:
        call(["sweep", "collect", _word(folder), "--out", _word(out)])
        return read(out)
    with tempfile.TemporaryDirectory(prefix="pageferry-") as temporary:
        call(["sweep", "collect", _word(folder), "--out", f"{temporary}/sweep"])
        return read(f"{temporary}/sweep")


def read(folder: Name) -> pd.DataFrame:
    """The sweep in a folder that ``pageferry sweep --out`` or ``sweep collect --out`` wrote, as of :func:`sweep`."""
    folder = Path(folder)
    records = json.loads((folder / "results.json").read_text("utf-8"))["runs"]
    experiment = json.loads((folder / "inputs.json").read_text("utf-8"))["experiments"][0]
    measured = {name for record in records for name in record["results"]}
    # Words stay words, also where they look like numbers: what a column is, the records say.
    frame = pd.read_csv(folder / "sweep.csv", dtype=str, keep_default_na=False)
    vary = [of["key"] for of in experiment["file"]["matrix"][0].get("vary", [])]
    for column in frame.columns:
        name = column.removeprefix("metric.")
        if column in ("experiment", "machine", "kernel"):
            continue
        if column == "payload_ok":
            frame[column] = frame[column] == "1"
        elif column == "seed":
            seeds = frame[column].map(int)
            frame[column] = seeds.astype("int64" if seeds.max() < 1 << 63 else "uint64")
        elif column in vary:
            if frame[column].str.fullmatch(r"-?\d+").all():
                frame[column] = frame[column].astype("int64")
        elif name in measured:
            frame[column] = frame[column].replace("", "nan").astype("float64")
        elif (frame[column] == "").any():
            frame[column] = pd.array([None if text == "" else int(text) for text in frame[column]], dtype="Int64")
        else:
            frame[column] = frame[column].astype("int64")
    # Each column was made anew: pandas keeps them apart, and warns of that, until they are put together again.
    frame = frame.copy()
    curves = experiment["file"].get("curves") or [{}]
    first = next(iter(records[0]["results"]), "")
    frame.attrs = {
        "experiment": experiment["name"],
        "title": experiment["file"]["title"],
        "metric": curves[0].get("metric", first),
        "x": next((key for key in vary if pd.api.types.is_numeric_dtype(frame[key])), None),
        "vary": vary,
        "units": _units(folder, experiment["file"], frame),
    }
    return frame


#: The unit is the last word of a key.
_SUFFIXES = {
    "_bytes": "bytes",
    "_mb_s": "MB/s",
    "_mbit_s": "Mbit/s",
    "_cycles": "cycles",
    "_ns": "ns",
    "_us": "us",
    "_ms": "ms",
    "_mhz": "MHz",
    "_percent": "%",
}


def _units(folder: Path, file: dict[str, Any], frame: pd.DataFrame) -> dict[str, str]:
    dictionary = pd.read_csv(folder / "dictionary.csv", keep_default_na=False)
    units = dict(zip(dictionary["metric"], dictionary["unit"], strict=True))
    units |= {key: parameter["unit"] for key, parameter in file["parameters"].items()}
    for column in frame.columns:
        for suffix, unit in _SUFFIXES.items():
            if column not in units and column.endswith(suffix):
                units[column] = unit
    return {column: units[column] for column in frame.columns if column in units}


def _sweep_arguments(
    experiment: Name,
    machine: Names | None,
    kernel: Names | None,
    vary: Mapping[str, Values] | None,
    settings: Mapping[str, Value],
    repeat: int,
    seed: int,
    quick: bool,
    metric: str | None,
) -> list[str]:
    arguments = ["sweep", _word(experiment), "--repeat", str(repeat), "--seed", str(seed)]
    arguments += _many("--machine", machine) + _many("--kernel", kernel)
    for key, values in (vary or {}).items():
        text = values if isinstance(values, str) else ",".join(_plain(value) for value in values)
        arguments += ["--vary", f"{key}={text}"]
    for key, value in settings.items():
        arguments += ["--set", f"{key}={_plain(value)}"]
    if metric is not None:
        arguments += ["--metric", metric]
    if quick:
        arguments.append("--quick")
    return arguments


def _word(name: Name) -> str:
    word = os.fspath(name)
    # What begins with a dash would be an option.
    return f"./{word}" if word.startswith("-") else word


def _one(option: str, name: Name | None) -> list[str]:
    return [] if name is None else [option, _word(name)]


def _many(option: str, names: Names | None) -> list[str]:
    if names is None:
        return []
    if isinstance(names, str | os.PathLike):
        names = [names]
    return [option, ",".join(_word(name) for name in names)]


def _written_out(value: str) -> str:
    """``4K`` as ``4096``: the command reads such numbers for a sweep only."""
    shift = {"K": 10, "M": 20, "G": 30}.get(value[-1:].upper())
    return str(int(value[:-1]) << shift) if shift and value[:-1].isdecimal() else value


def _plain(value: Any) -> str:
    """A value as the command line has it: whole numbers of numpy are numbers, too; 1e6 is 1000000."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        raise TypeError(f"a setting is a whole number or a word, not {value!r}; what it takes in turn goes to `vary`")
    return str(int(value))
