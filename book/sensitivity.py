"""Renews the page of the book on which constants the results hang, and its pictures.

    python book/sensitivity.py PAGEFERRY FOLDER          runs `pageferry sensitivity` for each paper, renews the page
    python book/sensitivity.py PAGEFERRY FOLDER --kept   renews the page from what is in FOLDER
    ... --paper PAPER                                    the same, of the part of one paper

PAGEFERRY is the program, built with --release. FOLDER keeps what it writes for each paper; one that was interrupted
goes on from there. What is between the comments of a paper in `src/sensitivity.md` is replaced, and nothing else. It
fails where a run fails, or where the page has no place for a paper.
"""

import argparse
import csv
import json
import re
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "src"
#: Their runs take longer than all others together; the page says that they are left out.
LEFT_OUT = {"dd", "ephemeral-schemes", "postmark", "postmark-small", "postmark-whole", "web"}


def watched(experiment: dict) -> bool:
    """Whether something of it is judged, or it has a crossover."""
    lines = [line for curves in experiment.get("curves", []) for line in curves["lines"]]
    return bool(experiment["compare"]) or any("over" in line for line in lines)


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def table(head: list[str], body: list[list[str]]) -> str:
    ruler = ["--:" if name.startswith(">") else "---" for name in head]
    lines = [[name.removeprefix(">") for name in head], ruler, *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def constants(folder: Path) -> str:
    """The ten that matter most: each with what it moves most, up and down."""
    by_constant: dict[str, list[dict[str, str]]] = {}
    for row in rows(folder / "tornado.csv"):
        by_constant.setdefault(row["constant"], []).append(row)
    body = []
    for name, moved in by_constant.items():
        first = moved[0]
        key, _, files = name.partition(" of ")
        changes = ", ".join(f"{row['direction']} {float(row['change_percent']):+.1f} %" for row in moved)
        what = f"`{first['id']}`" if first["id"].count("-") > 1 else f"{first['experiment']}, {first['id']}"
        where = f"{what} on {first['machine']}"
        body.append([f"`{key}` of {files}", first["kind"], first["flips"], changes, where])
    return table(["constant", "kind", ">verdicts", "largest change", "of"], body)


def crossovers(folder: Path) -> str:
    body = []
    for row in rows(folder / "crossovers-range.csv"):
        gain = f"{float(row['gain_percent']):+.0f} %"
        low, high = (f"{float(row[f'gain_percent_{end}']):+.0f}" for end in ("low", "high"))
        by = {end: f" (`{row[f'{end}_by']}`)" if row[f"{end}_by"] else "" for end in ("earliest", "latest")}
        ends = [f"{row[end]}{told}" for end, told in by.items()]
        gains = f"{gain} ({low} to {high})"
        body.append([row["experiment"], row["crossover"], row["machine"], row["pays"], *ends, gains])
    if not body:
        return "It has no crossover.\n"
    head = ["experiment", "mechanism", "machine", ">pays from", ">earliest (by)", ">latest (by)", ">gain at the end"]
    return table(head, body)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("pageferry", type=Path)
    options.add_argument("folder", type=Path)
    options.add_argument("--kept", action="store_true")
    options.add_argument("--paper", action="append", help="renew the part of this paper only; may be given again")
    given = options.parse_args()
    listed = subprocess.run([given.pageferry, "experiments", "--json"], check=True, capture_output=True)
    papers: dict[str, list[str]] = {}
    for name, experiment in json.loads(listed.stdout).items():
        if experiment.get("paper") and watched(experiment) and name not in LEFT_OUT:
            papers.setdefault(experiment["paper"], []).append(name)
    for paper in given.paper or []:
        if paper not in papers:
            raise SystemExit(f"{paper}: no such paper, expected one of {', '.join(sorted(papers))}")
    page_file = SOURCE / "sensitivity.md"
    page = page_file.read_text()
    for paper, names in papers.items():
        if given.paper and paper not in given.paper:
            continue
        folder = given.folder / paper
        if not given.kept:
            command = [given.pageferry, "sensitivity", *names, "--out", folder, "--resume"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        picture = f"sensitivity-{paper}.svg"
        shutil.copyfile(folder / "tornado.svg", SOURCE / "pictures" / picture)
        figure = f"![The constants that matter most]({Path('pictures') / picture})"
        told = f"{figure}\n\n{constants(folder)}\n{crossovers(folder)}"
        block = re.compile(rf"(<!-- {re.escape(paper)} -->\n).*?(<!-- / -->)", re.DOTALL)
        page, found = block.subn(lambda at, told=told: f"{at[1]}\n{told}\n{at[2]}", page)
        if found != 1:
            places = f"expected `<!-- {paper} -->` to `<!-- / -->` once"
            raise SystemExit(f"{page_file}: {found} places for {paper}, {places}")
    page_file.write_text(page)


if __name__ == "__main__":
    main()
