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
from collections.abc import Callable, Sequence
from pathlib import Path

#: What a run is of, and its results.
Run = tuple[dict[str, object], dict[str, float]]


def results(folder: Path) -> list[Run]:
    """Of each run its experiment, machine, kernel and settings, and its results; of repeats, their medians."""
    told: dict[str, dict[str, object]] = {}
    #: Repeats have the same words, and are numbered alike.
    numbers: dict[str, int] = {}
    number_of: dict[str, int] = {}
    with (folder / "runs.csv").open(newline="") as text:
        for row in csv.DictReader(text):
            of = {key: row[key] for key in ("experiment", "machine", "kernel")} | json.loads(row["settings"])
            words = json.dumps(of, sort_keys=True)
            told[words] = of
            number_of[row["run"]] = numbers.setdefault(words, len(numbers))
    values: list[dict[str, list[float]]] = [{} for _ in numbers]
    with (folder / "results.csv").open(newline="") as text:
        rows = csv.reader(text)
        head = next(rows)
        run, metric, value = (head.index(name) for name in ("run", "metric", "value"))
        for row in rows:
            values[number_of[row[run]]].setdefault(row[metric], []).append(float(row[value]))
    return [
        (told[words], {metric: statistics.median(all_of_it) for metric, all_of_it in values[number].items()})
        for words, number in numbers.items()
    ]


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
