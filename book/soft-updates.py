"""Renews what the book says of PostMark with soft updates, in runs that no experiment has.

    python book/soft-updates.py PAGEFERRY           makes twenty runs of some seconds each, and renews the page
    python book/soft-updates.py PAGEFERRY --check   renews nothing, and fails if the page says something else

PAGEFERRY is the program, built with --release. What is between the comments in `src/disks.md` is replaced, and nothing
else.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

from measured import asked, renew, renewed

PAGE = Path(__file__).parent / "src" / "disks.md"
MACHINES = ("xeon-up", "xeon-htt", "xeon-mp", "xeon-mp-htt", "opteron-mp")
#: A fifth of the paper's files, and of FreeBSD's buffers.
SIZES = ("files=4000", "transactions=8000", "kernel.disk.buffers=2560", "kernel.disk.dirty_buffers=644")
WAYS = {"false": ("soft_updates=false",), "true": ("soft_updates=true",)}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("pageferry", type=Path)
parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is not as it should be")
given = parser.parse_args()


def transactions(of: tuple[str, str, str]) -> float:
    """A second, on a machine under a kernel, with soft updates or without."""
    machine, kernel, soft = of
    words = [word for setting in SIZES + WAYS[soft] for word in ("--set", setting)]
    told = asked(given.pageferry, "run", "postmark", "--machine", machine, "--kernel", kernel, *words)
    return told["results"]["transactions_per_s"]


def soft_updates() -> str:
    """Transactions a second under `original`, and what `sf_buf` gains, by machine."""
    runs = [(machine, kernel, soft) for machine in MACHINES for kernel in ("original", "sf_buf") for soft in WAYS]
    with ThreadPoolExecutor(cpu_count()) as hosts:
        found = dict(zip(runs, hosts.map(transactions, runs), strict=True))
    lines = ["| machine | transactions/s | with soft updates | gain of sf_buf | with soft updates |"]
    lines.append("|---|" + "--:|" * 4)
    for machine in MACHINES:
        before = [found[machine, "original", soft] for soft in WAYS]
        gains = [100 * (found[machine, "sf_buf", soft] / found[machine, "original", soft] - 1) for soft in WAYS]
        cells = [machine, *(f"{each:,.0f}" for each in before), *(f"{gain:.0f} %" for gain in gains)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


renew(PAGE, renewed(PAGE, {"soft_updates": soft_updates()}), given.check)
