"""Renews what the book says of `today` and of the machines that extend it, in runs that no experiment has.

    python book/today.py PAGEFERRY           makes the runs, some 70 of a moment each, and renews the page
    python book/today.py PAGEFERRY --check   renews nothing, and fails if the page says something else

PAGEFERRY is the program, built with --release. What is between the comments in `src/caveats.md` is replaced, and
nothing else: each names what it holds.
"""

import argparse
from functools import cache
from pathlib import Path

from measured import asked, renew, renewed, table

PAGE = Path(__file__).parent / "src" / "caveats.md"
DIRECT = "kernel.pipe.direct=false"
LATE = "machine.ipi.deliver_other_package_cycles"
KB = 1024

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("pageferry", type=Path)
parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is not as it should be")
given = parser.parse_args()


@cache
def run(experiment: str, machine: str, kernel: str, *settings: str) -> dict[str, float]:
    """The results of a quick run."""
    words = [word for setting in settings for word in ("--set", setting)]
    told = asked(given.pageferry, "run", experiment, "--machine", machine, "--kernel", kernel, "--quick", *words)
    return told["results"]


def pipe(machine: str, kernel: str, *settings: str) -> float:
    """MB/s of `bw-pipe`."""
    return run("bw-pipe", machine, kernel, *settings)["bandwidth_mb_s"]


def size(experiment: str, machine: str, kernel: str, kb: int, *settings: str) -> float:
    """MB/s where a call moves so much."""
    key = "chunk_bytes" if experiment == "pipe-sizes" else "size_bytes"
    return run(experiment, machine, kernel, f"{key}={kb * KB}", *settings)["bandwidth_mb_s"]


def pipes() -> str:
    """A pipe between two CPUs, and on one, by machine: MB/s."""
    rows = []
    for machine in ("today", "today-unmitigated", "today-invlpgb", "today-8", "today-64", "today-arm"):
        row = [f"`{machine}`"]
        for pin in ("pin=same", "pin=other"):
            original, sf_buf = (pipe(machine, kernel, pin) for kernel in ("original", "sf_buf"))
            row += [f"{original:,.0f}", f"{sf_buf:,.0f}", f"{sf_buf / original:.2f}"]
        rows.append(row)
    head = [f"{what}, {where}" for where in ("one CPU", "two CPUs") for what in ("`original`", "`sf_buf`", "times")]
    return table(head, rows)


def race() -> str:
    """The gain of the mapping cache, by who wins the race for a woken thread."""
    settings = {f"interrupts after {late:,} cycles": f"{LATE}={late}" for late in (1000, 1500, 1900, 2200)}
    rows = []
    for name, setting in (settings | {"a machine of one CPU": "machine.cpu.packages=1"}).items():
        both = [run("bw-pipe", "today", kernel, setting) for kernel in ("original", "sf_buf")]
        shares = [f"{of.get('one_cpu_time_percent', 100):.0f} %" for of in both]
        rows.append([name, *shares, f"{both[1]['bandwidth_mb_s'] / both[0]['bandwidth_mb_s']:.2f}"])
    return table(["`original` on one CPU", "`sf_buf` on one CPU", "times as fast"], rows)


def public() -> str:
    """Beside what others measured."""
    gib = 1e6 / 2**30
    twice = [pipe("today", "original", DIRECT, f"chunk_bytes={kb * KB}") * gib for kb in (64, 256)]
    read = run("ephemeral-schemes", "today", "sf_buf", "user=ptrace", "rounds=64")["bandwidth_mb_s"] / 1000
    rows = [
        ["Linux: a pipe, `write` and `read`", "3.5 GiB/s", f"{twice[0]:.1f} by 64 KB, {twice[1]:.1f} by 256 KB"],
        ["Linux: `vmsplice` and `splice`", "32 GiB/s", f"{pipe('today', 'sf_buf') * gib:.1f} (copies once)"],
        ["Linux 6.18: `process_vm_readv`, 64 KB", "13.6 GB/s", f"{read:.1f}"],
    ]
    for kb, published in ((8, "9.2"), (32, "14.1"), (64, "15.8"), (1024, "12.8")):
        here = pipe("today-8", "sf_buf", "pin=other", f"chunk_bytes={kb * KB}") / 1000
        rows.append([f"MPI by KNEM, {kb:,} KB", f"{published} GB/s", f"{here:.1f}"])
    for machine, name in (("today", "two complexes"), ("today-8", "one complex")):
        once, copied_twice = pipe(machine, "sf_buf", "pin=other"), pipe(machine, "original", "pin=other", DIRECT)
        rows.append([f"one copy for two: POWER6; {name}", "3.7 to 4.1 times", f"{once / copied_twice:.1f} times"])
    return table(["measured", "here"], rows)


def spinning() -> str:
    """Many that wait for one lock."""
    rows = []
    for machine, cycles in (("today-8", 37), ("today-64", 200)):
        waiter = f"machine.cpu.lock_waiter_cycles={cycles}"
        queue, word = (run("netperf", machine, "sf_buf", *of)["throughput_mbit_s"] for of in ((), (waiter,)))
        rows.append([f"`{machine}`, {cycles} cycles", f"{queue:,.0f}", f"{word:,.0f}"])
    return table(["a queue", "one word"], rows)


def steps() -> str:
    """Neighbouring sizes: MB/s."""
    bound = "pin=same"
    loan = ("send=loan", "total_bytes=67108864")
    told = [
        ("`pipe-sizes`, `sf_buf`, one CPU", "pipe-sizes", "today", "sf_buf", (64, 68, 128, 132), (bound,)),
        ("`pipe-sizes`, `original`, not bound", "pipe-sizes", "today", "original", (32, 36, 40, 44), ()),
        ("`uvm-pipe`, `uvm`, loan", "uvm-pipe", "today", "uvm", (32, 36, 40, 44), loan),
        ("`ping-pong`, `uvm`, socket", "ping-pong", "today", "uvm", (8, 12, 16, 20), ("by=socket",)),
        ("`file-read`, `uvm`, transfer", "file-read", "today", "uvm", (124, 128, 132, 136), ("receive=transfer",)),
        ("`pipe-sizes`, `sf_buf`, `xeon-mp`", "pipe-sizes", "xeon-mp", "sf_buf", (64, 68, 72, 76), ()),
    ]
    rows = [
        [name, *(f"{kb} KB: {size(experiment, machine, kernel, kb, *of):,.0f}" for kb in sizes)]
        for name, experiment, machine, kernel, sizes, of in told
    ]
    return table(["", "", "", ""], rows)


blocks = {block.__name__: block() for block in (pipes, race, public, spinning, steps)}
renew(PAGE, renewed(PAGE, blocks), given.check)
