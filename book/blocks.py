"""Renews the tables of the book on a kernel that takes no TLB entries.

    python book/blocks.py PAGEFERRY FOLDER          makes the runs, renews the page
    python book/blocks.py PAGEFERRY FOLDER --kept   renews the page from the results in FOLDER
    ... --check                                    renews nothing, and fails if the page says something else

PAGEFERRY is the program, built with --release. FOLDER keeps the results. What is between the comments in
`src/blocks.md` is replaced, and nothing else: each names what it holds.
"""

from pathlib import Path

import measured
from measured import Run, one, table

PAGE = Path(__file__).parent / "src" / "blocks.md"
EXPERIMENTS = ["kernel-compile"]
MAPPING, RELOAD, HASH = "kernel.pmap.mapping", "kernel.refill.reload", "kernel.refill.hash"
#: Uses of memory as metrics name them, by how the tables do.
USES = {
    "kernel text": "text",
    "kernel data": "data",
    "kernel stacks": "stacks",
    "page tables, hash table": "tables",
    "page cache": "files",
    "pages cleared and copied": "programs",
    "pipe buffers": "buffers",
    "devices": "devices",
}
#: The machines that the paper compares, with the handler of each.
COMPARED = {"603": ("ppc603", "slow-insert"), "604": ("ppc604", "slow")}


def on(machine: str, reload: str, **settings: str) -> dict[str, object]:
    """The compile on a machine, its files in memory unless `cache` says otherwise."""
    return {
        "experiment": "kernel-compile",
        "machine": machine,
        RELOAD: reload,
        HASH: "true",
        MAPPING: settings.get("mapping", "pte"),
        "cache": settings.get("cache", "warm"),
    }


def gains(runs: list[Run]) -> str:
    """What blocks are worth, by machine and by what handles misses: in percent of misses and of time."""
    rows = []
    for name, machine, reload in (
        ("603, assembler for the hash table, C for the rest", "ppc603", "slow-insert"),
        ("603, assembler for all", "ppc603", "fast"),
        ("603, C for all", "ppc603", "slow"),
        ("604, C for what hardware does not find", "ppc604", "slow"),
        ("604, assembler for that", "ppc604", "fast"),
        ("604 of 200 MHz, C", "ppc604-200", "slow"),
    ):
        cells = []
        for metric in ("tlb_misses_total", "wall_s"):
            pages, blocks = (one(runs, metric, on(machine, reload, mapping=m)) for m in ("pte", "bat"))
            cells.append(f"{100 - 100 * blocks / pages:.1f} %")
        rows.append([name, *cells])
    return table(["fewer misses", "less time"], rows)


def entries(runs: list[Run]) -> str:
    """What the kernel's entries in use are of, where pages map it: in percent of all, in samples."""
    columns = [
        (f"{name}{told}", on(machine, reload, cache=cache))
        for cache, told in (("warm", ""), ("cold", ", files from the disk"))
        for name, (machine, reload) in COMPARED.items()
    ]
    named = {"all": "kernel_tlb_share_percent"}
    metrics = {name: f"tlb_share_{use}_percent" for name, use in USES.items() if use != "buffers"} | named
    rows = [[name, *(f"{one(runs, metric, of):.1f} %" for _, of in columns)] for name, metric in metrics.items()]
    return table([name for name, _ in columns], rows)


def misses(runs: list[Run]) -> str:
    """What misses are of, by how the kernel is mapped."""
    columns = [
        (f"{name}, {told}", on(machine, reload, mapping=mapping))
        for name, (machine, reload) in COMPARED.items()
        for mapping, told in (("pte", "pages"), ("bat", "blocks"))
    ]
    metrics = {"programs": "tlb_misses_users"} | {name: f"tlb_misses_{use}" for name, use in USES.items()}
    metrics |= {"all": "tlb_misses_total"}
    rows = [[name, *(f"{one(runs, metric, of):,.0f}" for _, of in columns)] for name, metric in metrics.items()]
    return table([name for name, _ in columns], rows)


if __name__ == "__main__":
    measured.main(__doc__, PAGE, EXPERIMENTS, [gains, entries, misses])
