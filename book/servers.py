"""Renews the tables of the book on servers that are processes.

    python book/servers.py PAGEFERRY FOLDER          makes the runs, renews the page
    python book/servers.py PAGEFERRY FOLDER --kept   renews the page from the results in FOLDER

PAGEFERRY is the program, built with --release. FOLDER keeps the results. What is between the comments in
`src/servers.md` is replaced, and nothing else: each names what it holds.
"""

import argparse
import csv
import json
import re
import subprocess
import textwrap
from pathlib import Path

PAGE = Path(__file__).parent / "src" / "servers.md"
EXPERIMENTS = ["message", "tagged-entries", "file-server", "packet"]
METHODS = ["random", "previous", "proposed", "migrating"]
METHOD = "kernel.ispc.method"
TAGS = "kernel.pmap.tags"
SERVER = "kernel.ispc.file_server"
#: How a message is passed, by how the table says it.
MESSAGES: dict[str, dict[str, str]] = {
    "pipe, copied": {"by": "pipe", "kernel.pipe.direct": "false"},
    "pipe, mapped": {"by": "pipe", "kernel.pipe.direct": "true"},
    "socket": {"by": "socket"},
    "loan": {"by": "loan"},
    "transfer": {"by": "transfer"},
    "both": {"by": "both"},
    "pass": {"by": "pass"},
    "server, random": {"by": "ispc", METHOD: "random"},
    "server, migrating": {"by": "ispc", METHOD: "migrating"},
}
#: Bytes of a call and of a datagram.
CALLS = {"512 bytes": 512, "4 KB": 4096, "16 KB": 16384, "32 KB": 32768}
DATAGRAMS = {"64 bytes": 64, "256": 256, "512": 512, "1,024": 1024, "1,472": 1472}
#: Pages of its own that an application goes over between two requests.
BESIDE_PAGES = 32

Run = tuple[dict[str, object], dict[str, float]]


def results(folder: Path) -> list[Run]:
    """Of each run its experiment, machine, kernel and settings, and its results."""
    runs: dict[str, Run] = {}
    with (folder / "runs.csv").open(newline="") as text:
        for row in csv.DictReader(text):
            told = {key: row[key] for key in ("experiment", "machine", "kernel")}
            runs[row["run"]] = (told | json.loads(row["settings"]), {})
    with (folder / "results.csv").open(newline="") as text:
        for row in csv.DictReader(text):
            runs[row["run"]][1][row["metric"]] = float(row["value"])
    return list(runs.values())


def one(runs: list[Run], metric: str, wanted: dict[str, object]) -> float:
    """The result of the only run that has these settings; without a value, a setting is one that the run has not."""
    found = [of for told, of in runs if all(told.get(key) == value for key, value in wanted.items())]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} runs have {wanted}, expected one")
    return found[0][metric]


def short(time_us: float) -> str:
    """Three digits, or all that are before the point."""
    return f"{time_us:.1f}" if time_us < 99.95 else f"{time_us:,.0f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| | " + " | ".join(head) + " |", "|---|" + "--:|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def paragraph(text: str) -> str:
    return textwrap.fill(text, width=120, break_on_hyphens=False) + "\n"


def messages(runs: list[Run]) -> str:
    on = {"experiment": "message", "machine": "today"}
    rows = [
        [name, *(f"{one(runs, 'message_us', on | {METHOD: None} | by | {TAGS: tags}):.2f}" for by in MESSAGES.values())]
        for name, tags in {"no tags": None, "tags": "true"}.items()
    ]
    return table(list(MESSAGES), rows)


def rounds(runs: list[Run]) -> str:
    on = {"experiment": "tagged-entries", METHOD: "random", "beside_pages": BESIDE_PAGES}
    tagged, plain = (one(runs, "round_us", on | {TAGS: tags}) for tags in ("true", "false"))
    return paragraph(
        f"An application that goes over {BESIDE_PAGES} pages of its own between two requests finds their entries still "
        f"in the TLB: a round takes {tagged:.2f} us instead of {plain:.2f}."
    )


def calls(runs: list[Run]) -> str:
    """By operation, a row for each way to the file; and what servers add."""
    rows, more = [], {method: [] for method in METHODS}
    for op in ("read", "write"):
        on = {"experiment": "file-server", "op": op}
        own = [one(runs, "call_us", on | {SERVER: "false", "size_bytes": size}) for size in CALLS.values()]
        for method in METHODS:
            wanted = on | {METHOD: method, SERVER: None}
            times = [one(runs, "call_us", wanted | {"size_bytes": size}) for size in CALLS.values()]
            more[method] += [time - without for time, without in zip(times, own, strict=True)]
            rows.append([f"{op}, {method}" if method == METHODS[0] else method, *map(short, times)])
        rows.append(["the kernel's own", *map(short, own)])
    reserved = [time for method in METHODS[1:] for time in more[method]]
    told = paragraph(
        f"The bytes are copied twice on their way through the file server. So a call costs {min(reserved):.0f} to "
        f"{max(reserved):.0f} us more than with the kernel's own file system by the methods that use reserved entries. "
        f"By `random`, whose detachment searches the TLB, it costs up to {max(more['random']):.0f} us more."
    )
    return f"{table(list(CALLS), rows)}\n{told}"


def datagrams(runs: list[Run]) -> str:
    on = {"experiment": "packet", "corunner": "false", "machine": "sh7751r"}
    ways = {
        f"by a socket, {method}" if method == METHODS[0] else method: {"by": "sockets", METHOD: method}
        for method in METHODS
    }
    ways["from a piece of the area, proposed"] = {"by": "area", METHOD: "proposed"}
    ways["ART-Linux, by a socket"] = {"kernel": "art-linux"}
    rows = [
        [name, *(short(one(runs, "time_us", on | way | {"size_bytes": size})) for size in DATAGRAMS.values())]
        for name, way in ways.items()
    ]
    return table(list(DATAGRAMS), rows)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("pageferry", type=Path)
    options.add_argument("folder", type=Path)
    options.add_argument("--kept", action="store_true")
    given = options.parse_args()
    if not given.kept:
        command = [given.pageferry, "reproduce", *EXPERIMENTS, "--out", given.folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    runs = results(given.folder)
    page = PAGE.read_text()
    for name, text in {"messages": messages, "rounds": rounds, "calls": calls, "datagrams": datagrams}.items():
        block = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- / -->)", re.DOTALL)
        page, places = block.subn(lambda at, text=text: f"{at[1]}\n{text(runs)}\n{at[2]}", page)
        if places != 1:
            raise SystemExit(f"{PAGE}: {places} places, expected `<!-- measured: {name} -->` to `<!-- / -->` once")
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
