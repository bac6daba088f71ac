"""What pages of the book say of runs, and how a page is renewed from a folder of results.

A page has blocks that begin with `<!-- measured: NAME -->` and end with `<!-- / -->`. The function NAME of the page's
script makes what is between them of the runs; nothing else of the page is changed.
"""

import argparse
import csv
import json
import re
import statistics
import subprocess
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

#: What a run is of, and its results.
Run = tuple[dict[str, object], dict[str, float]]


def rows(folder: Path, name: str, columns: Sequence[str]) -> Iterator[list[str]]:
    """These columns of a table of results, row by row."""
    path = folder / name
    try:
        with path.open(newline="") as text:
            lines = csv.reader(text)
            head = next(lines, [])
            missing = [column for column in columns if column not in head]
            if missing:
                raise SystemExit(f"{path}:1: no column {', '.join(missing)}, expected what `reproduce --out` writes")
            places = [head.index(column) for column in columns]
            for row in lines:
                if len(row) != len(head):
                    raise SystemExit(f"{path}:{lines.line_num}: {len(row)} fields, expected {len(head)}")
                yield [row[place] for place in places]
    except OSError as why:
        raise SystemExit(f"{path}: {why.strerror}; expected a folder of `pageferry reproduce --out`") from None


def refuse_quick(folder: Path) -> None:
    """Quick runs have other results than those of a whole reproduction."""
    path = folder / "results.json"
    try:
        with path.open() as text:
            # It says so before its runs, which are many.
            is_quick = '"quick": true' in text.read(200)
    except OSError as why:
        raise SystemExit(f"{path}: {why.strerror}; expected a folder of `pageferry reproduce --out`") from None
    if is_quick:
        raise SystemExit(f"{folder} has quick runs, expected those of `pageferry reproduce` without --quick")


def values(folder: Path) -> dict[str, dict[str, float]]:
    """The results of each run, by its number."""
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for line, (run, metric, value) in enumerate(rows(folder, "results.csv", ("run", "metric", "value")), 2):
        try:
            found[run][metric] = float(value)
        except ValueError:
            raise SystemExit(f"{folder / 'results.csv'}:{line}: `{value}`, expected a number") from None
    return found


def results(folder: Path) -> list[Run]:
    """Of each run its experiment, machine, kernel and settings, and its results; of repeats, their medians."""
    found = values(folder)
    told: dict[str, dict[str, object]] = {}
    #: Repeats have the same words.
    repeats: dict[str, list[dict[str, float]]] = {}
    for run, *of, settings in rows(folder, "runs.csv", ("run", "experiment", "machine", "kernel", "settings")):
        run_of = dict(zip(("experiment", "machine", "kernel"), of, strict=True)) | json.loads(settings)
        words = json.dumps(run_of, sort_keys=True)
        told[words] = run_of
        repeats.setdefault(words, []).append(found[run])
    return [
        (told[words], {metric: median_of(metric, runs) for metric in {metric: None for run in runs for metric in run}})
        for words, runs in repeats.items()
    ]


def median_of(metric: str, runs: list[dict[str, float]]) -> float:
    """Of those that have it."""
    return statistics.median(run[metric] for run in runs if metric in run)


def asked(pageferry: Path, *arguments: str | Path) -> dict[str, Any]:
    """What the program answers, as JSON."""
    try:
        answer = subprocess.run([pageferry, *arguments, "--json"], check=True, stdout=subprocess.PIPE).stdout
    except OSError as why:
        raise SystemExit(f"{pageferry}: {why.strerror}; expected the program, built with --release") from None
    except subprocess.CalledProcessError as why:
        raise SystemExit(f"`{' '.join(map(str, why.cmd))}` ended with {why.returncode}") from None
    told: dict[str, Any] = json.loads(answer)
    return told


def one(runs: list[Run], metric: str, wanted: dict[str, object]) -> float:
    """The result of the only run that has these settings; without a value, a setting is one that the run has not."""
    found = [of for told, of in runs if all(told.get(key) == value for key, value in wanted.items())]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} runs have {wanted}, expected one")
    return found[0][metric]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| | " + " | ".join(head) + " |", "|---|" + "--:|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def paragraph(text: str) -> str:
    return textwrap.fill(text, width=120, break_on_hyphens=False) + "\n"


def renewed(page: Path, blocks: dict[str, str]) -> str:
    """The text of the page with these blocks, each of which it has once, between its comments."""
    text = page.read_text()
    for name, block in blocks.items():
        place = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- / -->)", re.DOTALL)
        text, places = place.subn(lambda at, block=block: f"{at[1]}\n{block}\n{at[2]}", text)
        if places != 1:
            raise SystemExit(f"{page}: {places} places, expected `<!-- measured: {name} -->` to `<!-- / -->` once")
    return text


def renew(page: Path, text: str, check: bool) -> None:
    """Writes the page; if it is only to be checked, fails where it says something else."""
    if not check:
        page.write_text(text)
        return
    for number, (is_, should) in enumerate(zip(page.read_text().splitlines(), text.splitlines(), strict=False), 1):
        if is_ != should:
            raise SystemExit(f"{page}:{number}: {is_}\nexpected: {should}")
    print(f"{page.name} says what runs have given")


def main(
    doc: str | None, page: Path, experiments: Sequence[str], blocks: Sequence[Callable[[list[Run]], str]]
) -> None:
    """Makes the runs, or takes those that were kept, and renews the page."""
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("pageferry", type=Path)
    options.add_argument("folder", type=Path)
    options.add_argument("--kept", action="store_true")
    options.add_argument("--check", action="store_true", help="change nothing; fail if the page is not as it should be")
    given = options.parse_args()
    if not given.kept:
        command = [given.pageferry, "reproduce", *experiments, "--out", given.folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    runs = results(given.folder)
    renew(page, renewed(page, {block.__name__: block(runs) for block in blocks}), given.check)
