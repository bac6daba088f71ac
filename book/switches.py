"""Renews the tables of the book on what lmbench measures: switches from process to process, and memory.

    python book/switches.py PAGEFERRY FOLDER          makes the runs, renews the page
    python book/switches.py PAGEFERRY FOLDER --kept   renews the page from the results in FOLDER
    ... --check                                    renews nothing, and fails if the page says something else

PAGEFERRY is the program, built with --release. FOLDER keeps the results. What is between the comments in
`src/switches.md` is replaced, and nothing else: each names what it holds.
"""

from pathlib import Path

import measured
from measured import Run, one, table

PAGE = Path(__file__).parent / "src" / "switches.md"
EXPERIMENTS = ["context-switch", "memory", "uvm-pipe", "bw-pipe"]
#: What lmbench measured, in us: a null call, switches in the order of the columns, a word there and back by a pipe.
PENTIUM_PRO = {
    "Linux 1.3": ["4", "6", "22", "7", "107", "31"],
    "UnixWare": ["5", "21", "22", "", "", "86"],
}
PENTIUM_4 = {
    "Linux 2.4.18": ["0.67", "0.83", "1.70", "3.91", "1.95", "22.0", "29.7", "4.90"],
    "Linux 2.4.21": ["0.45", "0.77", "0.91", "1.06", "1.03", "24.3", "37.6", ""],
}

#: What lmbench measured of memory: ns until a load from the first level, the second and memory is there; MB/s that are
#: read, written, copied by the library, copied by a loop, and go through a pipe.
PENTIUM_PRO_MEMORY = {
    "Linux 1.3": ["12", "90", "194", "205", "56", "57", "42", "73"],
    "UnixWare": ["14", "34", "196", "214", "86", "55", "65", ""],
}
PENTIUM_4_MEMORY = {
    "Linux 2.4.18": ["0.84", "7.72", "118", "2007", "1189", "852", "901", "1568"],
}

def modelled(runs: list[Run], machine: str, kernel: str, of: list[tuple[int, int]], digits: int) -> list[str]:
    """The row of a machine: each column is of so many processes, and of so many KB of each."""

    def at(metric: str, processes: int, kb: int) -> float:
        wanted = {"experiment": "context-switch", "machine": machine, "kernel": kernel}
        return one(runs, metric, wanted | {"processes": processes, "size_bytes": kb << 10})

    there_and_back = 2 * at("hop_us", 2, 0)
    values = [at("null_call_us", 2, 0), *(at("switch_us", *column) for column in of), there_and_back]
    return [f"{value:.{digits}f}" for value in values]


def beside(rows: dict[str, list[str]], of: list[tuple[int, int]]) -> str:
    head = ["null call", *(f"{processes}p/{kb}K" for processes, kb in of), "pipe, there and back"]
    return table(head, [[name, *row] for name, row in rows.items()])


def pentium_pro(runs: list[Run]) -> str:
    """A Pentium Pro of 200 MHz."""
    of = [(2, 0), (2, 32), (8, 0), (8, 32)]
    rows = PENTIUM_PRO | {"*modelled, `uvm`*": modelled(runs, "pentium-pro", "uvm", of, 1)}
    return beside(rows, of)


def pentium_4(runs: list[Run]) -> str:
    """Pentium 4s of 2.4 GHz."""
    of = [(2, 0), (2, 16), (2, 64), (8, 16), (8, 64), (16, 64)]
    rows = PENTIUM_4 | {"*modelled, `original`*": modelled(runs, "xeon-up", "original", of, 2)}
    return beside(rows, of)


def memory(runs: list[Run], machine: str, kernel: str, arrays_kb: tuple[int, int, int], pipe_mb_s: float) -> list[str]:
    """The row of a machine: what lies in its first level, in its second, and in neither."""

    def at(metric: str, kb: int) -> float:
        wanted = {"experiment": "memory", "machine": machine, "kernel": kernel}
        return one(runs, metric, wanted | {"size_bytes": kb << 10})

    latencies = [at("latency_ns", kb) for kb in arrays_kb]
    rates = [at(f"{what}_mb_s", arrays_kb[-1]) for what in ("read", "write", "copy")]
    return [*(f"{value:.3g}" for value in latencies), *(f"{value:.0f}" for value in (*rates, rates[-1], pipe_mb_s))]


def beside_memory(rows: dict[str, list[str]]) -> str:
    head = ["L1, ns", "L2, ns", "memory, ns", "read", "write", "copy, library", "copy, loop", "pipe"]
    return table(head, [[name, *row] for name, row in rows.items()])


def pentium_pro_memory(runs: list[Run]) -> str:
    """Memory of a Pentium Pro of 200 MHz."""
    of = {"experiment": "uvm-pipe", "machine": "pentium-pro", "kernel": "uvm", "send": "copy", "receive": "copy"}
    pipe_mb_s = one(runs, "bandwidth_mb_s", of | {"size_bytes": 64 << 10, "refill": "false"})
    row = memory(runs, "pentium-pro", "uvm", (4, 64, 8192), pipe_mb_s)
    return beside_memory(PENTIUM_PRO_MEMORY | {"*modelled, `uvm`*": row})


def pentium_4_memory(runs: list[Run]) -> str:
    """Memory of a Pentium 4 of 2.4 GHz."""
    pipe_mb_s = one(runs, "bandwidth_mb_s", {"experiment": "bw-pipe", "machine": "xeon-up", "kernel": "original"})
    row = memory(runs, "xeon-up", "original", (4, 128, 8192), pipe_mb_s)
    return beside_memory(PENTIUM_4_MEMORY | {"*modelled, `original`*": row})


def all_of_them(runs: list[Run]) -> str:
    """A switch by processes and what each works on."""
    named = {"pentium-pro": "uvm", "xeon-up": "original", "p4-flip": "linux-2.6", "today": "original"}
    sizes = [0, 4, 16, 32, 64]
    rows = []
    for machine, kernel in named.items():
        for processes in (2, 4, 8, 16):
            digits = 1 if machine == "pentium-pro" else 2
            cells = modelled(runs, machine, kernel, [(processes, kb) for kb in sizes], digits)
            rows.append([f"{machine}, {processes} processes", *cells[1:-1]])
    return table([f"{kb} KB" for kb in sizes], rows)


BLOCKS = [pentium_pro, pentium_4, pentium_pro_memory, pentium_4_memory, all_of_them]

if __name__ == "__main__":
    measured.main(__doc__, PAGE, EXPERIMENTS, BLOCKS)
