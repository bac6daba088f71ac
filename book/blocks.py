"""Renews the measured parts of the book's page on a kernel that takes no TLB entries.

    python book/blocks.py PAGEFERRY FOLDER          makes the runs, renews the page
    python book/blocks.py PAGEFERRY FOLDER --kept   renews the page from the results in FOLDER
    ... --check                                    renews nothing, and fails if the page says something else

PAGEFERRY is the program, built with --release. FOLDER keeps the results. What is between the comments in
`src/blocks.md` is replaced, and nothing else: each names what it holds.
"""

from pathlib import Path

import measured
from measured import Run, one, paragraph, table

PAGE = Path(__file__).parent / "src" / "blocks.md"
EXPERIMENTS = ["kernel-compile", "compile-hash"]
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

#: Who handles misses, by how the tables say it.
HANDLED = {
    "603, assembler for the hash table, C for the rest": ("ppc603", "slow-insert"),
    "603, assembler for all": ("ppc603", "fast"),
    "603, C for all": ("ppc603", "slow"),
    "604, C for what hardware does not find": ("ppc604", "slow"),
    "604, assembler for that": ("ppc604", "fast"),
    "604 of 200 MHz, C": ("ppc604-200", "slow"),
}


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
    for name, (machine, reload) in HANDLED.items():
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


def saved(before: float, after: float) -> float:
    return 100 - 100 * after / before


def gives_way(runs: list[Run]) -> str:
    """What fast handlers leave of the gain, and which entries give way in the hash table."""
    gain = {
        reload: saved(*(one(runs, "wall_s", on("ppc603", reload, mapping=m)) for m in ("pte", "bat")))
        for reload in ("slow-insert", "fast", "slow")
    }
    counts = ("hash_evictions", "hash_users_displaced", "hash_kernel_displaced")
    pages, blocks = ([one(runs, c, on("ppc603", "slow-insert", mapping=m)) for c in counts] for m in ("pte", "bat"))
    return paragraph(
        f"With fast handlers {100 * gain['fast'] / gain['slow-insert']:.0f} % of the gain are left on a 603, "
        f"where the paper says that nearly all of it is gone. Where C handles every miss, {gain['slow']:.0f} % of "
        f"the time go, and fast handlers leave {100 * gain['fast'] / gain['slow']:.0f} % of that. The kernel's "
        f"entries also fill the hash table: mapped by pages it makes {pages[0]:,.0f} entries give way to others, "
        f"{pages[1]:,.0f} of which are a program's that goes for one of the kernel's, and {pages[2]:,.0f} one of "
        f"the kernel's that goes for a program's; by blocks it is {blocks[0]:,.0f}, {blocks[1]:,.0f} and "
        f"{blocks[2]:,.0f}."
    )


def not_in_the_table(runs: list[Run]) -> str:
    """What misses of the hash table are of."""
    of = on("ppc603", "slow-insert")
    count = one(runs, "hash_misses", of)
    users, cleared = (count * one(runs, f"hash_misses_{use}_percent", of) / 100 for use in ("users", "programs"))
    return paragraph(
        f"Of the {count:,.0f} misses of the hash table on the 603, {users:,.0f} are the programs' and "
        f"{cleared:,.0f} of their pages as the kernel clears and copies them. The report has this table for all "
        "runs (`compile-uses`)."
    )


def worth(runs: list[Run]) -> str:
    """What a saved miss is worth."""
    rows = []
    for name, (machine, reload) in HANDLED.items():
        pages, blocks = (on(machine, reload, mapping=m) for m in ("pte", "bat"))
        saved = one(runs, "tlb_misses_total", pages) - one(runs, "tlb_misses_total", blocks)
        by_cause = {
            cause: one(runs, f"cycles.{cause}", pages) - one(runs, f"cycles.{cause}", blocks)
            for cause in ("total", "idle", "tlb_miss", "refill")
        }
        handling = (by_cause["tlb_miss"] + by_cause["refill"]) / saved
        rest = (by_cause["total"] - by_cause["idle"]) / saved - handling
        rows.append([name, f"{saved:,.0f}", f"{handling + rest:.0f}", f"{handling:.0f}", f"{rest:.1f}"])
    return table(["misses saved", "cycles saved with each", "of which handling it", "all else"], rows)


def elsewhere(runs: list[Run]) -> str:
    """What the paper's other sections tell."""
    without = {
        mapping: saved(
            one(runs, "wall_s", on("ppc603", "fast", mapping=mapping)),
            one(runs, "wall_s", on("ppc603", "fast", mapping=mapping) | {HASH: "false"}),
        )
        for mapping in ("pte", "bat")
    }
    hits = {name: one(runs, "hash_hits_percent", on(*machine)) for name, machine in COMPARED.items()}
    spared = {
        name: saved(*(one(runs, "programs_s", on(machine, reload, mapping="bat")) for reload in (before, "fast")))
        for name, (machine, before) in COMPARED.items()
    }
    cold = {"experiment": "compile-hash", "cache": "cold"}
    idle, busy = (cold | {"kernel.pmap.idle_reclaim": on_idle} for on_idle in ("true", "false"))
    warm = {"experiment": "compile-hash", "cache": "warm"}
    poor, good = (one(runs, "hash_use_percent", warm | {"kernel.pmap.scatter": by}) for by in (1, 111))
    return paragraph(
        "The paper's other sections have facts that nothing here was fitted to. Without a hash table the compile "
        f"takes {without['bat']:.1f} % less on a 603 whose kernel is mapped by blocks, {without['pte']:.1f} % by "
        f"pages (paper: 5 %). Of a 604's misses {hits['604']:.0f} % find their entry in the hash table (paper: 80 "
        f"to 98 %), of a 603's {hits['603']:.0f} %. Fast handlers spare {spared['603']:.1f} % of the time that "
        f"programs are charged with on a 603 and {spared['604']:.1f} % on a 604 (paper: 15 %). Where files come "
        f"from the disk, the idle CPU clears {one(runs, 'hash_reclaimed', idle):,.0f} entries of address spaces "
        f"that are no more, and {one(runs, 'hash_evictions', idle):,.0f} have to give way; without that, "
        f"{one(runs, 'hash_evictions', busy):,.0f} have to (`compile-hash`). The constant that numbers are "
        f"multiplied by moves the use of the table by a point: {poor:.1f} % of the places with 1, {good:.1f} % "
        "with 111 (paper: 37 and 57 %). Any odd one serves numbers that are given in turn, and in a table of 128 "
        "KB Linux's 897 does what 1 does, since both leave 1 divided by 128."
    )


if __name__ == "__main__":
    measured.main(__doc__, PAGE, EXPERIMENTS, [gains, gives_way, entries, misses, not_in_the_table, worth, elsewhere])
