"""Renews the tables and figures of the book on receiving by page flip, and by what became of it.

    python book/receiving.py PAGEFERRY FOLDER          makes the runs, renews the page
    python book/receiving.py PAGEFERRY FOLDER --kept   renews the page from the results in FOLDER
    ... --check                                       renews nothing, and fails if the page says something else

PAGEFERRY is the program, built with --release. FOLDER keeps the results. What is between the comments in
`src/page-flip.md` is replaced, and nothing else: each names what it holds.
"""

from pathlib import Path

import measured
from measured import Run, one, paragraph, table

PAGE = Path(__file__).parent / "src" / "page-flip.md"
EXPERIMENTS = ["flip-receive", "flip-path", "receive-ways", "flip-buckets", "card-send"]
MTU, CLOCK, JOINED = "machine.nic.mtu_bytes", "machine.cpu.clock_mhz", "machine.nic.coalesce_bytes"
WAYS = ["copy", "flip", "window", "area"]
US, THROUGHPUT, EFFICIENCY = "receiver_us_per_mb", "throughput_mbit_s", "efficiency_mbit_per_cpu_percent"


def way(by: str, looks: bool, **settings: object) -> dict[str, object]:
    """A run of `receive-ways` whose reader is on another CPU than the card's."""
    told = {"experiment": "receive-ways", "by": by, "touch": str(looks).lower(), "reader": "package"}
    return told | {JOINED: None, CLOCK: None} | settings


#: Columns of the tables: what is received by, and whether the reader looks at it.
READERS = [(by, False) for by in [*WAYS, "nothing"]] + [(by, True) for by in WAYS]
HEAD = [
    ("thrown away" if by == "nothing" else by) + (", looked at" if looks else "") for by, looks in READERS
]


def sizes(runs: list[Run]) -> str:
    """What the reader's own CPU does for a MiB, by how much a call takes: in microseconds."""
    rows = []
    for size in (4096, 16384, 65536, 262144, 524288):
        of = {MTU: 4148, CLOCK: 3700, "read_bytes": size}
        cells = [one(runs, US, way(by, looks) | of) for by, looks in READERS]
        rows.append([f"{size // 1024} KB", *(f"{cell:.0f}" for cell in cells)])
    return table(HEAD, rows)


def frames(runs: list[Run]) -> str:
    """The same by what a frame carries, where nobody looks: in microseconds."""
    rows = []
    for mtu in (1500, 6052, 8244):
        of = {MTU: mtu, "socket_bytes": 524288}
        cells = [one(runs, US, way(by, False) | of) for by in [*WAYS, "nothing"]]
        rows.append([f"{mtu:,} bytes", *(f"{cell:.0f}" for cell in cells)])
    return table([*WAYS, "thrown away"], rows)


def joined(runs: list[Run]) -> str:
    """By a card that joins segments: microseconds of the reader's CPU for a MiB, and Gbit/s."""
    rows = []
    for mtu in (1500, 4148, 8244):
        of = {MTU: mtu, JOINED: 61440}
        cells = [
            f"{one(runs, US, way(by, looks) | of):.0f} ({one(runs, THROUGHPUT, way(by, looks) | of) / 1000:.0f})"
            for by, looks in READERS
        ]
        rows.append([f"{mtu:,} bytes", *cells])
    return table(HEAD, rows)


def clocks(runs: list[Run]) -> str:
    """By the clock, without that: in microseconds."""
    rows = []
    readers = [(by, looks) for by, looks in READERS if by != "nothing"]
    for mhz in (1500, 3000, 6000):
        of = {MTU: 4148, CLOCK: mhz}
        cells = [one(runs, US, way(by, looks) | of) for by, looks in readers]
        rows.append([f"{mhz / 1000:.1f} GHz", *(f"{cell:.0f}" for cell in cells)])
    return table([told for told, (by, _) in zip(HEAD, READERS, strict=True) if by != "nothing"], rows)


#: What a profile of the paper's receiver is told by, and the causes of cycles that are of it.
PARTS = {
    "the program, and its misses": ["user"],
    "TCP, IP and the driver": ["protocol"],
    "locks, and waiting for them": ["lock"],
    "copying": ["copy"],
    "the TLB's flush and misses": ["invalidate_local", "shootdown_sent", "shootdown_received", "tlb_miss"],
    "page tables, frames, the map": ["pte_work", "frame", "vm"],
    "system calls, switches, interrupts": ["syscall", "switch", "interrupt"],
}


#: Of the receiver whose cycles are told.
PROFILED_BYTES = 4194304


def profiled(mhz: int, by: str) -> dict[str, object]:
    """The receiver on the other package, with frames of a page."""
    told = {"experiment": "flip-receive", "kernel": "linux-2.6", "reader": "package", MTU: 4148, "touch": "true"}
    return told | {"machine": "p4-flip", CLOCK: mhz, "by": by, "total_bytes": PROFILED_BYTES}


def added(runs: list[Run]) -> str:
    """What a flip adds in the kernel, and what both wait for memory."""

    def cycles(part: str, mhz: int, by: str) -> float:
        causes = (one(runs, f"cycles.{cause}", profiled(mhz, by)) for cause in PARTS[part])
        return sum(causes) / (PROFILED_BYTES / 4096)

    def more(part: str, mhz: int) -> float:
        return cycles(part, mhz, "flip") - cycles(part, mhz, "copy")

    of = [more(part, 1800) for part in ("locks, and waiting for them", "page tables, frames, the map")]
    of.append(more("the TLB's flush and misses", 1800))
    locks, tables, flush = (f"{100 * part / sum(of):.0f}" for part in of)
    copies = cycles("copying", 2400, "copy") - cycles("copying", 1800, "copy")
    misses = more("the program, and its misses", 2400) - more("the program, and its misses", 1800)
    return paragraph(
        f"In the kernel a flip adds {sum(of):,.0f} cycles at 1.8 GHz, of which locks and waiting for them are "
        f"{locks} %, page tables, frames and the map {tables} %, and the flush {flush} %. From one clock to the other "
        f"the copy gets dearer by {copies:,.0f} cycles, and the misses by {misses:,.0f}: both wait for memory."
    )


def profile(runs: list[Run]) -> str:
    """Where the cycles of a page go, by clock and way: cycles of all CPUs, frames of a page, the other package."""
    ways = [profiled(mhz, by) for mhz in (1800, 2400) for by in ("copy", "flip")]

    def row(name: str, metrics: list[str]) -> list[str]:
        cells = [sum(one(runs, metric, way) for metric in metrics) / (PROFILED_BYTES / 4096) for way in ways]
        differences = [cells[1] - cells[0], cells[3] - cells[2]]
        return [name, *(f"{cell:,.0f}" for cell in cells), *(f"{cell:+,.0f}" for cell in differences)]

    rows = [row(name, [f"cycles.{cause}" for cause in causes]) for name, causes in PARTS.items()]
    busy = [one(runs, "cycles.total", way) - one(runs, "cycles.idle", way) for way in ways]
    known = [sum(one(runs, f"cycles.{cause}", way) for causes in PARTS.values() for cause in causes) for way in ways]
    if busy != known:
        raise SystemExit(f"parts of a page's cycles sum up to {known}, expected {busy}")
    clocks = [f"{by}, {ghz} GHz" for ghz in ("1.8", "2.4") for by in ("copy", "flip")]
    all_of_it = row("all", [f"cycles.{cause}" for causes in PARTS.values() for cause in causes])
    return table([*clocks, "flip's more, 1.8 GHz", "flip's more, 2.4 GHz"], [*rows, all_of_it])


#: What the paper printed, in Mbit/s for each percent of one CPU.
PUBLISHED = {(4148, "copy"): 6.52, (4148, "flip"): 6.48, (8244, "copy"): 6.86, (8244, "flip"): 6.85}


def readers(runs: list[Run]) -> str:
    """By where the receiver runs, at 1.8 GHz: Mbit/s for each percent of one CPU."""
    rows = []
    for (mtu, by), published in PUBLISHED.items():
        of = {"experiment": "flip-receive", "machine": "p4-flip", "kernel": "linux-2.6", "touch": "true"}
        of |= {"total_bytes": 4194304, CLOCK: 1800, MTU: mtu, "by": by}
        cells = [one(runs, EFFICIENCY, of | {"reader": cpu}) for cpu in ("interrupted", "sibling", "package")]
        rows.append([f"{mtu // 4096 * 4} KB, {by}", f"{published}", *(f"{cell:.2f}" for cell in cells)])
    return table(["published", "the interrupted CPU", "its sibling", "the other package"], rows)


#: Settings of the kernel that shorten the path of a flip: alone, and all of them.
LOCKED, RETURNS, FLUSHED = "kernel.transfer.locked_once", "kernel.transfer.returns", "kernel.pmap.full_flush_pages"
NONE = {LOCKED: 0, RETURNS: "false", FLUSHED: 32}
SHORTER = {"locks once": {LOCKED: 2}, "pages exchanged": {RETURNS: "true"}, "one flush": {FLUSHED: 1}}
ALL = {LOCKED: 2, RETURNS: "true", FLUSHED: 1}


def path(runs: list[Run]) -> str:
    """What a shorter path of a flip is worth: Mbit/s for each percent of one CPU, the median of four CPUs."""
    rows = []
    for mhz in (1200, 1800, 2400, 3600):
        for mtu in (4148, 8244):
            of = {"experiment": "flip-path", "read_bytes": 65536, CLOCK: mhz, MTU: mtu}
            ways = [{"by": "copy"} | NONE, {"by": "flip"} | NONE]
            ways += [{"by": "flip"} | NONE | way if mhz in (1800, 2400) else None for way in SHORTER.values()]
            ways += [{"by": "flip"} | ALL]
            cells = [f"{one(runs, EFFICIENCY, of | way):.2f}" if way else "" for way in ways]
            rows.append([f"{mhz / 1000:.1f} GHz, {mtu // 4096 * 4} KB", *cells])
    return table(["copy", "flip", *SHORTER, "all of it"], rows)


def shortened(runs: list[Run]) -> str:
    """How far a shorter path brings a flip, and what each part of it spares."""

    def efficiency(mhz: int, mtu: int, read: int, way: dict[str, object]) -> float:
        return one(runs, EFFICIENCY, {"experiment": "flip-path", "read_bytes": read, CLOCK: mhz, MTU: mtu} | way)

    def ahead(mhz: int, mtu: int) -> float:
        by_flip = efficiency(mhz, mtu, 65536, {"by": "flip"} | ALL)
        return 100 * (by_flip / efficiency(mhz, mtu, 65536, {"by": "copy"} | NONE) - 1)

    def cycles(way: dict[str, object]) -> float:
        of = {"experiment": "flip-path", "read_bytes": 65536, CLOCK: 2400, MTU: 8244}
        return one(runs, "busy_cycles_per_page", of | NONE | way)

    clocks = (1200, 1800, 2400, 3600)
    small, large = (", ".join(f"{ahead(mhz, mtu):+.1f}" for mhz in clocks) for mtu in (4148, 8244))
    flip = cycles({"by": "flip"})
    spared = {name: f"{flip - cycles({'by': 'flip'} | way):,.0f}" for name, way in SHORTER.items()}
    by_copy, by_flip = (efficiency(2400, 8244, 4096, {"by": by} | NONE) for by in ("copy", "flip"))
    return paragraph(
        f"With all of it a flip is ahead of the copy by {small} % with frames of 4 KB, by clock as in the table, and "
        f"by {large} % with frames of 8 KB. At 2.4 GHz with these a flip takes {flip - cycles({'by': 'copy'}):,.0f} "
        f"cycles a page more than a copy. Locks once take {spared['locks once']} of them off, one flush "
        f"{spared['one flush']}, and exchanged pages {spared['pages exchanged']}. With nttcp's reads of 4 KB there is "
        f"nothing to be had: {by_copy:.2f} by copy, {by_flip:.2f} by flip, "
        f"{efficiency(2400, 8244, 4096, {'by': 'flip'} | ALL):.2f} with all of it."
    )


def buckets(runs: list[Run]) -> str:
    """A flip of the paper's machine by a card that fills pages: Mbit/s for each percent of one CPU."""
    rows = []
    for looks in (False, True):
        for mhz in (1200, 1800, 2400, 3600):
            of = {"experiment": "flip-buckets", "touch": str(looks).lower(), "reader": "package", CLOCK: mhz}
            cells = [
                one(runs, EFFICIENCY, of | {"by": by, MTU: mtu, JOINED: joins})
                for mtu, joins in ((1500, 0), (1500, 61440), (4148, 0), (4148, 61440))
                for by in ("copy", "flip")
            ]
            name = f"{mhz / 1000:.1f} GHz" + (", looked at" if looks else "")
            rows.append([name, *(f"{cell:.2f}" for cell in cells)])
    names = [f"{mtu}{told}, {by}" for mtu in (1500, 4148) for told in ("", " joined") for by in ("copy", "flip")]
    return table(names, rows)


def sent(runs: list[Run]) -> str:
    """What a page takes that is sent through the card of `today`: cycles of all CPUs."""
    rows = []
    for size in (4096, 8192, 16384, 65536, 262144):
        of = {"experiment": "card-send", "machine": "today", "size_bytes": size}
        cells = [
            one(runs, "busy_cycles_per_page", of | {"send": send, "refill": refill})
            for refill in ("false", "true")
            for send in ("copy", "loan", "pin")
        ]
        rows.append([f"{size // 1024} KB", *(f"{cell:,.0f}" for cell in cells)])
    return table([send + told for told in ("", ", refilled") for send in ("copy", "loan", "pin")], rows)


BLOCKS = [readers, profile, added, path, shortened, buckets, sizes, frames, clocks, joined, sent]

if __name__ == "__main__":
    measured.main(__doc__, PAGE, EXPERIMENTS, BLOCKS)
