"""Renews the table of the book on how costs grow: the modelled machine's part.

    python book/growth.py PAGEFERRY FOLDER          makes the runs, renews the page
    python book/growth.py PAGEFERRY FOLDER --kept   renews the page from the results in FOLDER
    ... --check                                    renews nothing, and fails if the page says something else

PAGEFERRY is the program, built with --release. FOLDER keeps the results. What is between the comments in
`src/growth.md` is replaced, and nothing else. What the host executes, `lab/lab/host-costs` counts.
"""

from pathlib import Path

import measured
from measured import Run, one, table

PAGE = Path(__file__).parent / "src" / "growth.md"
EXPERIMENTS = ["cost-growth"]
CALLS = {
    "loan": [1, 16, 256, 4096],
    "transfer": [1, 16, 256, 4096],
    "pass": [1, 16, 256, 4096],
    "lookup": [10, 1000, 100_000],
    "space": [10, 1000, 100_000],
    "amap": [1, 10, 100],
    "fork": [1, 16, 128, 1024],
}


def cycles(runs: list[Run]) -> str:
    """Cycles by call and n."""
    rows = []
    for call, sizes in CALLS.items():
        for n in sizes:
            of = {"experiment": "cost-growth", "of": call, "n": n}
            values = (one(runs, metric, of) for metric in ("cycles_per_call", "cycles_per_unit"))
            rows.append([f"{call}, {n:,}", *(f"{value:,.0f}" for value in values)])
    return table(["cycles a call", "a unit"], rows)


if __name__ == "__main__":
    measured.main(__doc__, PAGE, EXPERIMENTS, [cycles])
