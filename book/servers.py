"""Renews the tables of the book on servers that are processes.

    python book/servers.py PAGEFERRY FOLDER          makes the runs, renews the page
    python book/servers.py PAGEFERRY FOLDER --kept   renews the page from the results in FOLDER
    ... --check                                    renews nothing, and fails if the page says something else

PAGEFERRY is the program, built with --release. FOLDER keeps the results. What is between the comments in
`src/servers.md` is replaced, and nothing else: each names what it holds.
"""

from pathlib import Path

import measured
from measured import Run, one, paragraph, table

PAGE = Path(__file__).parent / "src" / "servers.md"
EXPERIMENTS = [
    "message",
    "tagged-entries",
    "file-server",
    "packet",
    "ispc",
    "ispc-servers",
    "tlb-preload",
    "packet-preload",
    "tlb-scheduling",
    "large-pieces",
    "large-memory",
]
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
#: The paper's four operations, and its parts of one, by how the table says them.
OPS = ["sync-request", "async-request", "sync-return", "async-return"]
PARTS = {
    "switch": "process_switch_us",
    "first access": "first_access_us",
    "detachment": "ica_detach_us",
    "attachment": "ica_attach_us",
    "system call": "system_call_us",
    "other": "other_us",
    "all": "time_us",
}
#: TLB misses of a step and of a packet, by whose they are.
STEP_MISSES = ["application_own", "application_area", "server_own", "server_area"]
PACKET_MISSES = ["application_own", "application_area", "protocols_own", "protocols_area", "driver_own", "driver_area"]
#: What the paper measures itself, of the methods that it compares.
COMPARED = METHODS[:3]
#: Related work: settings, and pages that an application goes over beside its requests.
PRELOAD = "kernel.tlb.preload"
PASSES = "kernel.tlb.sched_passes"
LARGE = "kernel.ispc.large_pieces"
LARGE_MEMORY = "kernel.tlb.large_pages"
PRELOADS = {"nothing": "none", "recency": "recency", "and flushed pages": "recency-flushed"}
#: Pages of its own that an application goes over between two requests.
BESIDE_PAGES = 32


def short(time_us: float) -> str:
    """Three digits, or all that are before the point."""
    return f"{time_us:.1f}" if time_us < 99.95 else f"{time_us:,.0f}"


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


def steps(runs: list[Run]) -> str:
    """Figure 2: each operation by its parts."""
    rows = []
    for op in OPS:
        for data in ("false", "true"):
            for method in COMPARED:
                wanted = {"experiment": "ispc", "op": op, "data": data, METHOD: method}
                name = f"{op}, {'with' if data == 'true' else 'no'} data, {method}" if method == COMPARED[0] else method
                rows.append([name, *(f"{one(runs, metric, wanted):.2f}" for metric in PARTS.values())])
    return table(list(PARTS), rows)


def between(runs: list[Run]) -> str:
    """Steps between two servers beside those between an application and a server; and a packet's four steps."""

    def time(experiment: str, op: str, method: str) -> float:
        return one(runs, "time_us", {"experiment": experiment, "op": op, "data": "true", METHOD: method})

    rows = [
        [f"{op}, {name}", *(f"{time(experiment, op, method):.2f}" for method in COMPARED)]
        for op in OPS
        for name, experiment in {"application": "ispc", "servers": "ispc-servers"}.items()
    ]
    on = {"experiment": "packet", "machine": "sh7751r", "corunner": "false", "size_bytes": 64, "by": "area"}
    ways = []
    for method in COMPARED:
        four = [time(e, op, method) for e in ("ispc", "ispc-servers") for op in ("sync-request", "sync-return")]
        ways.append(f"{sum(four):.1f} of {one(runs, 'time_us', on | {METHOD: method}):.1f} us by `{method}`")
    told = paragraph(
        "A packet is four steps: the application's request and the protocol server's of the driver, and their returns. "
        f"Measured by themselves, with data, they are {', '.join(ways[:-1])} and {ways[-1]}, of a packet of 64 bytes. "
        "The rest is the work of protocols and driver."
    )
    return f"{table(list(COMPARED), rows)}\n{told}"


def packets(runs: list[Run]) -> str:
    """Figure 3: packets by size, without the coexisting process and with it."""
    rows = []
    for beside in ("false", "true"):
        on = {"experiment": "packet", "machine": "sh7751r", "corunner": beside}
        ways = {method: {"by": "area", METHOD: method} for method in METHODS} | {"ART-Linux": {"kernel": "art-linux"}}
        for name, way in ways.items():
            told = f"{'beside another' if beside == 'true' else 'alone'}, {name}" if name == METHODS[0] else name
            times = [one(runs, "time_us", on | way | {"size_bytes": size}) for size in DATAGRAMS.values()]
            rows.append([told, *map(short, times)])
    return table(list(DATAGRAMS), rows)


def misses(runs: list[Run]) -> str:
    """Whose TLB misses there are, in a step and on a packet's way."""

    def row(name: str, wanted: dict[str, object], whose: list[str]) -> list[str]:
        return [name, *(f"{one(runs, f'misses_{of}', wanted):.1f}" for of in whose)]

    def heads(whose: list[str]) -> list[str]:
        return [of.replace("_own", ", own").replace("_area", ", area") for of in whose]

    of_steps = [
        row(
            f"{op}, {method}" if method == COMPARED[0] else method,
            {"experiment": "ispc", "op": op, "data": "true", METHOD: method},
            STEP_MISSES,
        )
        for op in OPS
        for method in COMPARED
    ]
    of_packets = [
        row(
            f"{'beside another' if beside == 'true' else 'alone'}, {method}" if method == COMPARED[0] else method,
            {"experiment": "packet", "by": "area", "corunner": beside, "size_bytes": 1024, METHOD: method},
            PACKET_MISSES,
        )
        for beside in ("false", "true")
        for method in COMPARED
    ]
    return f"{table(heads(STEP_MISSES), of_steps)}\n{table(heads(PACKET_MISSES), of_packets)}"


def published(runs: list[Run]) -> str:
    """Each range that the paper states, and the one here."""

    def less(pairs: list[tuple[float, float]]) -> list[str]:
        """By how much the first of each is less than the second, in microseconds and in percent of the second."""
        by = [other - own for own, other in pairs]
        percent = [100 * (other - own) / other for own, other in pairs]
        return [f"{min(by):.1f} to {max(by):.1f}", f"{min(percent):.0f} to {max(percent):.0f}"]

    of_steps = []
    for op in OPS:
        for data in ("false", "true"):
            on = {"experiment": "ispc", "op": op, "data": data}
            proposed, previous = (one(runs, "time_us", on | {METHOD: method}) for method in ("proposed", "previous"))
            of_steps.append((proposed, previous))
    over: dict[str, list[tuple[float, float]]] = {"random": [], "art-linux": []}
    for beside in ("false", "true"):
        for size in DATAGRAMS.values():
            on = {"experiment": "packet", "machine": "sh7751r", "corunner": beside, "size_bytes": size}
            area = on | {"by": "area"}
            proposed = one(runs, "time_us", area | {METHOD: "proposed"})
            over["random"].append((proposed, one(runs, "time_us", area | {METHOD: "random"})))
            over["art-linux"].append((proposed, one(runs, "time_us", on | {"kernel": "art-linux"})))
    rows = []
    for name, us, percent, pairs in (
        ("a step, proposed against previous (4.2)", "0.6 to 2.2", "6 to 19", of_steps),
        ("a packet, against random (4.3)", "36.5 to 38.7", "26 to 34", over["random"]),
        ("against ART-Linux (4.3)", "18.0 to 37.8", "16 to 28", over["art-linux"]),
    ):
        here = less(pairs)
        rows.append([name, us, here[0], percent, here[1]])
    return table(["us less, published", "here", "% less, published", "here"], rows)


def preloads(runs: list[Run]) -> str:
    """What entries that are loaded ahead are worth, for a round of requests and for a packet."""
    rows = []
    pages = (0, 24, 40, 56)
    for method in COMPARED:
        for name, preload in PRELOADS.items():
            on = {METHOD: method, PRELOAD: preload}
            times = [one(runs, "round_us", on | {"experiment": "tlb-preload", "beside_pages": n}) for n in pages]
            packet = on | {"experiment": "packet-preload", "corunner": "false", "size_bytes": 1472}
            told = f"{method}, {name}" if preload == "none" else name
            rows.append([told, *map(short, times), short(one(runs, "time_us", packet))])
    return table([*(f"{n} pages" for n in pages), "a packet"], rows)


def scheduling(runs: list[Run]) -> str:
    """What the choice of threads by the TLB is worth: requests answered in a second."""
    clients, rows = (2, 4, 8, 16), []
    for method in COMPARED:
        for name, passes in {"the longest wait": 0, "the TLB": 8}.items():
            on = {"experiment": "tlb-scheduling", METHOD: method, PASSES: passes}
            rates = [f"{one(runs, 'requests_per_s', on | {'clients': n}):,.0f}" for n in clients]
            rows.append([f"{method}, by {name}" if passes == 0 else f"by {name}", *rates])
    return table([f"{n} clients" for n in clients], rows)


def large(runs: list[Run]) -> str:
    """What large pages save that attach the pieces of applications: microseconds of a request."""
    sizes, rows = {"4 KB": 4096, "16 KB": 16384, "64 KB": 65536, "256 KB": 262144, "1 MB": 1048576}, []
    for method, wanted in [(m, w) for m in COMPARED for w in ("false", "true") if (m, w) != ("random", "true")]:
        on = {"experiment": "large-pieces", METHOD: method, LARGE: wanted}
        few = [size for size in sizes.values() if wanted == "true" or size <= 65536]
        times = [f"{one(runs, 'time_us', on | {'data_bytes': size}):.1f}" for size in few]
        name = f"{method}, large pages" if wanted == "true" else method
        rows.append([name, *times, *["–"] * (len(sizes) - len(few))])
    return table(list(sizes), rows)


def memory(runs: list[Run]) -> str:
    """What large pages are worth for a process's own memory: microseconds of a round."""
    pages, rows = (0, 24, 40, 56, 240), []
    for method in COMPARED:
        for wanted in ("false", "true"):
            on = {"experiment": "large-memory", METHOD: method, LARGE_MEMORY: wanted}
            times = [short(one(runs, "round_us", on | {"beside_pages": n})) for n in pages]
            rows.append([f"{method}, large pages" if wanted == "true" else method, *times])
    return table([f"{n} pages" for n in pages], rows)


def refused(runs: list[Run]) -> str:
    """What a miss in the area costs that is refused."""
    on = {"experiment": "ispc", "op": "sync-request", "data": "true"}
    times = [f"{one(runs, 'refused_miss_us', on | {METHOD: method}):.2f}" for method in COMPARED]
    return table(COMPARED, [["a miss that is refused", *times]])


BLOCKS = [
    messages,
    rounds,
    calls,
    datagrams,
    steps,
    between,
    packets,
    refused,
    misses,
    published,
    preloads,
    scheduling,
    large,
    memory,
]


if __name__ == "__main__":
    measured.main(__doc__, PAGE, EXPERIMENTS, BLOCKS)
