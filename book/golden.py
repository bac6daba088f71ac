"""Keeps what the last reproduction came to beside each published result, so that a change is looked at before it lands.

    python book/golden.py FOLDER --check   fails where the results that `reproduce --out FOLDER` has left there moved
    python book/golden.py FOLDER           takes them for right: what moved is then in the change of `golden.csv`

A result has moved if it is more than one percent away from what is kept, if its verdict or its standing is another, if
its repeats have begun to disagree on the verdict, or if it was not there or is not there any more.
"""

import argparse
import csv
import sys
from collections import Counter
from pathlib import Path

import measured

GOLDEN = Path(__file__).parent / "golden.csv"
#: What a row is of. Rows that have all of this in common are told apart by their order.
OF = ("published", "experiment", "machine", "kernel", "what", "reading", "under")
#: How far away a result may be, of what is kept.
TOLERANCE = 0.01
#: Moved results that are told one by one.
MAX_TOLD = 40

Key = tuple[str, ...]
Rows = dict[Key, dict[str, str]]


def verdict(row: dict[str, str]) -> str:
    """Of all repeats, if they are of one mind."""
    if 0 < int(row["repeats_agree"]) < int(row["repeats"]):
        return "undecided"
    return {"true": "agrees", "false": "off"}.get(row["agrees"], "no answer")


def keyed(rows: list[dict[str, str]]) -> Rows:
    seen = Counter[Key]()
    found = {}
    for row in rows:
        key = tuple(row[name] for name in OF)
        seen[key] += 1
        found[(*key, str(seen[key]))] = row
    return found


def reproduced(folder: Path) -> list[dict[str, str]]:
    columns = (*OF, "here", "agrees", "standing", "repeats", "repeats_agree")
    found = [dict(zip(columns, row, strict=True)) for row in measured.rows(folder, "published.csv", columns)]
    try:
        return [digest(row) for row in found]
    except ValueError as why:
        raise SystemExit(f"{folder / 'published.csv'}: {why}") from None


def digest(row: dict[str, str]) -> dict[str, str]:
    """What is kept of a result."""
    here = row["here"] and f"{float(row['here']):.6g}"
    return {name: row[name] for name in OF} | {"here": here, "verdict": verdict(row), "standing": row["standing"]}


def moved(kept: dict[str, str], now: dict[str, str]) -> str | None:
    """What is not as it was, in words."""
    for name in ("verdict", "standing"):
        if kept[name] != now[name]:
            return f"{kept['here']} → {now['here']}: {kept[name]} → {now[name]}"
    if not (kept["here"] and now["here"]):
        return None if kept["here"] == now["here"] else f"{kept['here'] or 'nothing'} → {now['here'] or 'nothing'}"
    before, after = float(kept["here"]), float(now["here"])
    if abs(after - before) <= TOLERANCE * abs(before):
        return None
    by = f", {100 * (after / before - 1):+.1f} %" if before else ""
    return f"{kept['here']} → {now['here']}{by}"


def changes(kept: Rows, now: Rows) -> list[str]:
    told = []
    for key in {**kept, **now}:
        if key not in now:
            what = "is not there any more"
        elif key not in kept:
            what = f"is new: {now[key]['here']}, {now[key]['verdict']}"
        else:
            what = moved(kept[key], now[key])
        if what:
            published, experiment, machine, kernel, of, *rest = key[:-1]
            told.append(f"{published} ({experiment}, {', '.join(filter(None, [machine, kernel, of, *rest]))}): {what}")
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a result has moved")
    given = parser.parse_args()
    measured.refuse_quick(given.folder)
    now = reproduced(given.folder)
    if not given.check:
        with GOLDEN.open("w", newline="") as text:
            rows = csv.DictWriter(text, [*OF, "here", "verdict", "standing"], lineterminator="\n")
            rows.writeheader()
            rows.writerows(now)
        return
    with GOLDEN.open(newline="") as text:
        kept = list(csv.DictReader(text))
    absent = {row["experiment"] for row in kept} - {row["experiment"] for row in now}
    if absent:
        print(f"{given.folder} has no runs of {', '.join(sorted(absent))}")
    told = changes(keyed([row for row in kept if row["experiment"] not in absent]), keyed(now))
    if absent and not told:
        sys.exit("the others are what they were")
    if told:
        print(*told[:MAX_TOLD], sep="\n")
        more = f", {len(told) - MAX_TOLD} of them not told" if len(told) > MAX_TOLD else ""
        sys.exit(f"{len(told)} results moved{more}. If that is meant: python book/golden.py {given.folder}")
    undecided = sum(row["verdict"] == "undecided" for row in now)
    print(f"{len(now)} results are what they were; of {undecided} repeats disagree on the verdict, as they did")


if __name__ == "__main__":
    main()
