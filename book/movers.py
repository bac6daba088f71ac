"""Renews the tables of the book on the movers side by side.

    python book/movers.py PAGEFERRY FOLDER          makes the runs, renews the page
    python book/movers.py PAGEFERRY FOLDER --kept   renews the page from the results in FOLDER
    ... --check                                    renews nothing, and fails if the page says something else

PAGEFERRY is the program, built with --release. FOLDER keeps the results. What is between the comments in
`src/movers.md` is replaced, and nothing else: each names what it holds.
"""

from pathlib import Path

import measured
from measured import Run, one, paragraph, table

PAGE = Path(__file__).parent / "src" / "movers.md"
EXPERIMENTS = [
    "pass-modes",
    "quick-reference",
    "null-answers",
    "transfer-area",
    "push-down",
    "loan-locks",
    "card-send",
    "relatives",
]
SIZES = {"4 KB": 4096, "64 KB": 65536, "1 MB": 1048576}
#: Ways into a file, with the copies that each makes, by how the experiment calls them.
INTO_FILES = {
    "copied out and written": ("write", 2),
    "transferred and written": ("transfer-write", 1),
    "copied into a shared mapping": ("shared", 1),
    "transferred and pushed down, lent": ("lend", 0),
    "transferred and pushed down, given": ("give", 0),
}
RELATIVES = {
    "UVM, loan": "loan",
    "UVM, transfer": "transfer",
    "UVM, both": "both",
    "TCOW, out": "tcow",
    "TCOW, out and aligned in": "tcow-aligned",
    "Container Shipping, send": "container-send",
    "Container Shipping, receive": "container-receive",
    "Container Shipping, both": "container",
    "fbufs, cached, volatile": "fbuf-volatile",
    "fbufs, cached": "fbuf",
    "fbufs, uncached": "fbuf-uncached",
    "Mach out-of-line, copy": "mach-copy",
    "Mach out-of-line, move": "mach-move",
}


def modes(runs: list[Run]) -> str:
    """Cycles of 16 pages by every mode."""
    rows = []
    for by in ("share", "copy", "donate", "donate-zero", "loan"):
        of = {"experiment": "pass-modes", "by": by, "touch": "none", "meanwhile": "false", "size_bytes": 65536}
        whole, middle = of | {"part": "whole"}, of | {"part": "middle"}
        cells = [f"{one(runs, metric, whole):,.0f}" for metric in ("pass_cycles", "release_cycles", "refill_cycles")]
        rows.append([by, *cells, f"{one(runs, 'sender_entries_left', middle):.0f}"])
    return table(["pass", "release", "refill", "entries left where a part was passed"], rows)


def looks(runs: list[Run]) -> str:
    """Cycles of a look, and what is left of it."""
    rows = []
    for memory in ("written", "untouched"):
        for name, by in {"quick reference": "quick", "shared": "share", "copied": "copy"}.items():
            of = {"experiment": "quick-reference", "by": by, "memory": memory, "rw": "read"}
            small, large = of | {"look_bytes": 4096}, of | {"look_bytes": 61440}
            cells = [one(runs, "look_cycles", small), one(runs, "look_cycles", large)]
            cells += [one(runs, metric, small) for metric in ("source_entries_added", "source_fork_cycles")]
            rows.append([f"{name}, {memory}", *(f"{cell:,.0f}" for cell in cells)])
    return table(["a look at 4 KB", "at 60 KB", "entries left", "fork"], rows)


def areas(runs: list[Run]) -> str:
    """MB a second, by where pages go and how they are given up."""
    rows = []
    for name, to in {"given address": "given", "transfer area": "area"}.items():
        for how, dispose in {"anflush": "anflush", "munmap": "munmap", "replaced": "replace"}.items():
            if (to, dispose) == ("area", "replace"):
                continue
            of = {"experiment": "transfer-area", "to": to, "dispose": dispose, "kept": 0}
            values = (one(runs, "bandwidth_mb_s", of | {"size_bytes": size}) for size in SIZES.values())
            rows.append([f"{name}, {how}", *(f"{value:.0f}" for value in values)])
    return table(list(SIZES), rows)


def into_files(runs: list[Run]) -> str:
    """MB a second into a file, by how many copies."""
    rows = []
    for name, (by, copies) in INTO_FILES.items():
        of = {"experiment": "push-down", "by": by, "touch": "false"}
        values = (one(runs, "bandwidth_mb_s", of | {"size_bytes": size}) for size in SIZES.values())
        rows.append([name, str(copies), *(f"{value:.0f}" for value in values)])
    return table(["copies", *SIZES], rows)


def answers(runs: list[Run]) -> str:
    """MB a second from a null socket, by what it answers with."""
    rows = []
    for name, receive in {"copied": "copy", "transferred": "transfer"}.items():
        for source, kind in {"memory of its own": "memory", "clusters": "clusters"}.items():
            of = {"experiment": "null-answers", "machine": "pentium-pro", "receive": receive}
            of |= {"kernel.socket.null_answers": kind}
            sizes = [*SIZES.values(), 2097152]
            values = (one(runs, "bandwidth_mb_s", of | {"size_bytes": size}) for size in sizes)
            rows.append([f"{name}, {source}", *(f"{value:.0f}" for value in values)])
    return table([*SIZES, "2 MB"], rows)


def locks(runs: list[Run]) -> str:
    """Cycles a page of what is done with a page on loan from a file, by how loans are locked."""
    columns = {
        "Pentium Pro": {"machine": "pentium-pro"},
        "xeon-mp": {"machine": "xeon-mp", "others": 0},
        "xeon-mp, another reads": {"machine": "xeon-mp", "others": 1},
    }
    rows = []
    for name, then in {"lent on": "lend", "stored to": "store", "stored to, the file gone": "orphans"}.items():
        for how, loans in {"in one step": "one-step", "as published": "published"}.items():
            of = {"experiment": "loan-locks", "then": then, "kernel.locks.loans": loans}
            cells = [f"{one(runs, 'then_cycles_per_page', of | column):,.0f}" for column in columns.values()]
            rows.append([f"{name}, {how}", *cells])
    return table(list(columns), rows)


def refusals(runs: list[Run]) -> str:
    """How often the lock of an object is refused that two processes are at."""
    of = {"experiment": "loan-locks", "machine": "xeon-mp", "kernel.locks.loans": "published", "others": 1}
    refused = one(runs, "loan_locks_refused", of | {"then": "store"})
    pages = one(runs, "pages_lent", of | {"then": "store"})
    return paragraph(
        f"Where two processes are at the same object, its lock is refused {16 * refused / pages:.0f} times in a round "
        "of 16 pages that are stored to. Who is refused looks again at once, and so waits no longer than for the lock "
        "itself. While the other process has the file open it does not end: so there the third pair is like the "
        "second."
    )


def card(runs: list[Run]) -> str:
    """The CPU's load at the rate of the wire."""
    rows = []
    for before, refill in {"": "false", "filled before each write, ": "true"}.items():
        for name, send in {"copied": "copy", "lent": "loan"}.items():
            of = {"experiment": "card-send", "machine": "pentium-pro", "send": send, "refill": refill}
            of |= {"size_bytes": 65536, "machine.nic.link_mbit_s": 100}
            sums = ({"machine.nic.transmit_checksum": by_card} for by_card in ("false", "true"))
            rows.append([before + name, *(f"{one(runs, 'cpu_percent', of | by):.1f} %" for by in sums)])
    return table(["checksums by the CPU", "by the card"], rows)


def relatives(runs: list[Run]) -> str:
    """How many times as fast as copying twice."""

    def speed(by: str, size: int, touch: str) -> float:
        of = {"experiment": "relatives", "by": by, "size_bytes": size, "touch": touch}
        return one(runs, "bandwidth_mb_s", of)

    rows = []
    for name, by in RELATIVES.items():
        of = [(size, touch) for touch in ("false", "true") for size in SIZES.values()]
        factors = [speed(by, *at) / speed("copy", *at) for at in of]
        rows.append([name, *(f"{factor:.2f}" if factor < 10 else f"{factor:.0f}" for factor in factors)])
    small, *others = SIZES
    return table([*SIZES, f"touched: {small}", *others], rows)


if __name__ == "__main__":
    blocks = [modes, looks, answers, areas, into_files, locks, refusals, card, relatives]
    measured.main(__doc__, PAGE, EXPERIMENTS, blocks)
