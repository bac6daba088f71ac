"""Renews the tables of the book on shadow objects.

    python book/shadow-objects.py PAGEFERRY FOLDER          makes the runs, renews the page
    python book/shadow-objects.py PAGEFERRY FOLDER --kept   renews the page from the results in FOLDER
    ... --check                                           renews nothing, and fails if the page says something else

PAGEFERRY is the program, built with --release. FOLDER keeps the results. What is between the comments in
`src/shadow-objects.md` is replaced, and nothing else: each names what it holds.
"""

from pathlib import Path

import measured
from measured import Run, one, table

PAGE = Path(__file__).parent / "src" / "shadow-objects.md"
EXPERIMENTS = ["fork-chains", "page-out"]
UVM, BSD = "uvm-paging", "bsd-vm"


def depth(runs: list[Run]) -> str:
    """Cycles of a fault behind so many forks."""
    rows = []
    for forks in (1, 4, 16):
        of = {"experiment": "fork-chains", "of": "depth", "forks": forks}
        uvm, bsd = of | {"kernel": UVM}, of | {"kernel": BSD}
        faults = [[one(runs, f"{how}_fault_cycles", kernel) for how in ("read", "write")] for kernel in (uvm, bsd)]
        values = [forks, *faults[0], one(runs, "chain_objects", bsd), *faults[1]]
        rows.append([f"{value:,.0f}" for value in values])
    head = ["forks", "UVM: first load", "first store", "BSD VM: objects", "first load", "first store"]
    lines = ["| " + " | ".join(head) + " |", "|" + "--:|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def server(runs: list[Run]) -> str:
    """What a server's chains come to."""
    rows = []
    for paged, before in {"false": "", "true": "paged, "}.items():
        for settle, name in {"true": "it writes again", "false": "it does not"}.items():
            of = {"experiment": "fork-chains", "of": "server", "forks": 16, "paged": paged, "settle": settle}
            uvm, bsd = of | {"kernel": UVM}, of | {"kernel": BSD}
            # Where the disk is waited for, its time is all.
            rounds = [f"{one(runs, 'round_cycles', k):,.0f}" if paged == "false" else "" for k in (uvm, bsd)]
            held = [f"{one(runs, 'held_pages', k):.0f}" for k in (uvm, bsd)]
            objects = f"{one(runs, 'chain_objects', bsd):.0f}"
            name = "the parent writes again" if (before, settle) == ("", "true") else before + name
            rows.append([name, held[0], rounds[0], objects, held[1], rounds[1]])
    uvms, bsds = ["UVM: pages held", "cycles a round"], ["BSD VM: objects", "pages held", "cycles a round"]
    return table([*uvms, *bsds], rows)


def page_out(runs: list[Run]) -> str:
    """Pages out, by order."""
    rows = []
    for kernel, name in {UVM: "UVM", BSD: "BSD VM"}.items():
        for order in ("ascending", "scattered"):
            of = {"experiment": "page-out", "kernel": kernel, "order": order}
            values = [
                one(runs, metric, of | {"passes": passes})
                for passes in (1, 2)
                for metric in ("pages_out_per_s", "pages_per_request")
            ]
            rows.append([f"{name}, {order}", *(f"{value:.0f}" for value in values)])
    return table(["once: pages out a second", "a request", "twice: pages out a second", "a request"], rows)


if __name__ == "__main__":
    measured.main(__doc__, PAGE, EXPERIMENTS, [depth, server, page_out])
