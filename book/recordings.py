"""Renews the table of the book on recordings of real programs.

    python book/recordings.py PAGEFERRY           replays them, 18 runs of a moment each, and renews the page
    python book/recordings.py PAGEFERRY --check   renews nothing, and fails if the page says something else

PAGEFERRY is the program, built with --release. What is between the comments in `src/recordings.md` is replaced, and
nothing else.
"""

import argparse
from pathlib import Path
from typing import Any

from measured import asked, renew, renewed

PAGE = Path(__file__).parent / "src" / "recordings.md"
RECORDINGS = Path(__file__).parent.parent / "lab" / "lab" / "recordings"
PROGRAMS = {
    "tar.strace": "`tar` through `gzip`",
    "cp.strace": "`cp -r` of a tree with symbolic links",
    "git-status.strace": "`git status`",
}
MACHINES = ["xeon-up", "xeon-mp", "opteron-mp"]
HEAD = ["recording", "machine", "time under `original`", "`sf_buf`", "TLB invalidations, local", "remote issued"]


def replayed(pageferry: Path, recording: str, machine: str, kernel: str) -> dict[str, Any]:
    """What a replay has cost."""
    return asked(pageferry, "replay", RECORDINGS / recording, "--machine", machine, "--kernel", kernel)


def table_of(pageferry: Path) -> str:
    """Time and invalidations, by recording and machine."""
    lines = ["| " + " | ".join(HEAD) + " |", "|---|---|" + "--:|" * 4]
    for recording, program in PROGRAMS.items():
        for machine in MACHINES:
            kernels = [replayed(pageferry, recording, machine, kernel) for kernel in ("original", "sf_buf")]
            calls = sum(call["calls"] for call in kernels[0]["calls"].values())
            name = f"{program}, {calls} calls" if machine == MACHINES[0] else ""
            cells = [f"{of['elapsed_us'] / 1000:.1f} ms" for of in kernels]
            for metric in ("tlb_invalidations_local", "tlb_invalidations_remote_issued"):
                before, after = (of["counters"].get(metric, 0) for of in kernels)
                cells.append(f"{before:,} → {after:,}" if before else "0")
            lines.append(f"| {' | '.join([name, machine, *cells])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pageferry", type=Path)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is not as it should be")
    given = parser.parse_args()
    renew(PAGE, renewed(PAGE, {"replays": table_of(given.pageferry)}), given.check)
