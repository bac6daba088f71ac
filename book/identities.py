"""Looks whether the readings of a reproduction agree with its counts, run by run.

    python book/identities.py FOLDER [--all]     FOLDER is what `pageferry reproduce --out FOLDER` has left

Rates, shares and times are worked out by each experiment from what its runs have counted. Here they are worked out
again, from other columns of `results.csv`: a bandwidth times the time that it was measured in is a number of bytes,
phases of a step sum up to it, and so on. It fails where one does not hold, and with `--all`, for a whole reproduction,
where one is about no run any more.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import measured

Values = dict[str, float]
PAGE_BYTES = 4096
USES = ("buffers", "data", "devices", "files", "programs", "stacks", "tables", "text", "users")
#: Of a step of communication; a miss that is refused is within others.
PHASES = ("system_call_us", "ica_attach_us", "ica_detach_us", "process_switch_us", "first_access_us", "other_us")
#: Whose mappings the metric of ephemeral invalidations leaves out.
NOT_EPHEMERAL = ("buffers", "physio")
#: Messages between CPUs that are under way where the measured part begins or ends: three CPUs, three others each.
MAX_UNDER_WAY = 9
#: What moves pages, of all causes of cycles.
MOVES = (
    "lock",
    "pte_work",
    "frame",
    "vm",
    "tlb_miss",
    "invalidate_local",
    "shootdown_sent",
    "shootdown_received",
)


class Identity(NamedTuple):
    """Two ways to a number: `of` a run that has the metrics `needs`, and what it should be."""

    name: str
    needs: tuple[str, ...]
    of: Callable[[Values], float]
    should_be: Callable[[Values], float]
    #: How far apart they may be, as a share and in units.
    relative: float = 1e-9
    absolute: float = 1e-6


def all_of(values: Values, prefix: str, suffix: str = "") -> float:
    return sum(value for name, value in values.items() if name.startswith(prefix) and name.endswith(suffix))


def busy(values: Values) -> float:
    return values["cycles.total"] - values["cycles.idle"]


def pages(values: Values) -> float:
    """So many pages were moved, if the cycles of one are right."""
    return busy(values) / values["busy_cycles_per_page"]


def moved(values: Values) -> float:
    return values["bandwidth_mb_s"] * values["elapsed_us"]


def cpus(values: Values) -> float:
    """How many there are, if the cycles of a page and the bandwidth are of one time."""
    clock_mhz = values["bandwidth_mb_s"] * values["elapsed_cycles_per_page"] / PAGE_BYTES
    return values["cycles.total"] / values["elapsed_us"] / clock_mhz


def whole(of: Callable[[Values], float]) -> Callable[[Values], float]:
    return lambda values: max(round(of(values)), 1)


def hundred_or_nothing(of: Callable[[Values], float]) -> Callable[[Values], float]:
    return lambda values: 100.0 if of(values) else 0.0


def shares(prefix: str) -> tuple[Callable[[Values], float], Callable[[Values], float]]:
    def sum_of(values: Values) -> float:
        return all_of(values, prefix, "_percent")

    return sum_of, hundred_or_nothing(sum_of)


def told(name: str) -> Callable[[Values], float]:
    return lambda values: values[name]


IDENTITIES = [
    Identity(
        "all causes are all cycles",
        ("cycles.total",),
        lambda v: all_of(v, "cycles.") - v["cycles.total"],
        told("cycles.total"),
    ),
    Identity(
        "mappings by user are those by how they were made",
        ("ephemeral_hits",),
        lambda v: all_of(v, "mappings_by_"),
        lambda v: v["ephemeral_hits"] + v["ephemeral_misses"] + v["ephemeral_direct"] + v["run_pages"],
    ),
    Identity(
        "ephemeral invalidations are those of their users",
        ("ephemeral_invalidations",),
        lambda v: all_of(v, "invalidations_by_") - sum(v[f"invalidations_by_{user}"] for user in NOT_EPHEMERAL),
        told("ephemeral_invalidations"),
    ),
    Identity(
        "invalidations are local or asked of others",
        ("tlb_invalidations",),
        lambda v: v["tlb_invalidations_local"] + v["tlb_invalidations_remote_issued"],
        told("tlb_invalidations"),
    ),
    Identity(
        "what users had others invalidate was asked of them",
        ("tlb_invalidations",),
        lambda v: max(all_of(v, "remote_invalidations_by_") - v["tlb_invalidations_remote_issued"], 0),
        lambda _: 0,
        absolute=MAX_UNDER_WAY,
    ),
    *(
        Identity(
            f"{what}: hits and misses are look-ups",
            (f"{what}_lookups",),
            lambda v, what=what: v[f"{what}_hits"] + v[f"{what}_misses"],
            lambda v, what=what: v[f"{what}_lookups"],
        )
        for what in ("tlb", "fetch_tlb", "icache")
    ),
    Identity(
        "a share of hits",
        ("ephemeral_hit_rate_percent",),
        lambda v: v["ephemeral_hit_rate_percent"] / 100 * (v["ephemeral_hits"] + v["ephemeral_misses"]),
        told("ephemeral_hits"),
    ),
    Identity("a bandwidth is of whole bytes", ("bandwidth_mb_s", "elapsed_us"), moved, whole(moved), 0, 0.01),
    Identity(
        "a page's cycles and the bandwidth are of one clock",
        ("bandwidth_mb_s", "elapsed_us", "elapsed_cycles_per_page"),
        cpus,
        whole(cpus),
        2e-3,
    ),
    Identity(
        "megabits are of whole bytes",
        ("throughput_mbit_s", "elapsed_us"),
        lambda v: v["throughput_mbit_s"] * v["elapsed_us"] / 8,
        whole(lambda v: v["throughput_mbit_s"] * v["elapsed_us"] / 8),
        0,
        0.01,
    ),
    Identity(
        "megabits are requests times their bytes",
        ("requests_per_s", "bytes_per_request"),
        lambda v: v["requests_per_s"] * v["bytes_per_request"] * 8 / 1e6,
        told("throughput_mbit_s"),
    ),
    Identity(
        "requests are whole",
        ("requests_per_s", "round_us"),
        lambda v: v["requests_per_s"] * v["elapsed_us"] / 1e6,
        whole(lambda v: v["requests_per_s"] * v["elapsed_us"] / 1e6),
        1e-6,
    ),
    Identity(
        "use of the CPUs is what is not idle",
        ("cpu_percent",),
        lambda v: v["cpu_percent"] / (busy(v) / v["cycles.total"]) / 100,
        whole(lambda v: v["cpu_percent"] / (busy(v) / v["cycles.total"]) / 100),
        1e-3,
    ),
    Identity(
        "efficiency is megabits by use",
        ("efficiency_mbit_per_cpu_percent",),
        lambda v: v["efficiency_mbit_per_cpu_percent"] * v["cpu_percent"],
        told("throughput_mbit_s"),
    ),
    Identity(
        "a page's cycles in locks",
        ("lock_cycles_per_page",),
        lambda v: v["lock_cycles_per_page"] * pages(v),
        told("cycles.lock"),
    ),
    Identity(
        "a page's cycles of flushes",
        ("flush_cycles_per_page",),
        lambda v: v["flush_cycles_per_page"] * pages(v),
        lambda v: v["cycles.invalidate_local"] + v["cycles.shootdown_sent"] + v["cycles.shootdown_received"],
    ),
    Identity(
        "a page's cycles of moving it",
        ("moving_cycles_per_page",),
        lambda v: v["moving_cycles_per_page"] * pages(v),
        lambda v: sum(v[f"cycles.{cause}"] for cause in MOVES),
    ),
    Identity(
        "a delivery is a round",
        ("delivery_us",),
        lambda v: v["delivery_us"] * v["set.rounds"],
        told("elapsed_us"),
    ),
    Identity(
        "transactions are of their phase",
        ("transactions_per_s", "transactions_us"),
        lambda v: v["transactions_per_s"] * v["transactions_us"] / 1e6,
        told("set.transactions"),
    ),
    Identity(
        "phases of PostMark sum up to it",
        ("transactions_us",),
        lambda v: v["creation_us"] + v["transactions_us"] + v["deletion_us"],
        told("elapsed_us"),
    ),
    Identity(
        "bytes of files are read in all of the time",
        ("transactions_us",),
        lambda v: v["read_mb_s"] * v["elapsed_us"],
        told("file_bytes_read"),
    ),
    Identity(
        "bytes of files read and written are of one time",
        ("read_mb_s", "file_bytes_read"),
        lambda v: v["read_mb_s"] * v["file_bytes_written"],
        lambda v: v["write_mb_s"] * v["file_bytes_read"],
    ),
    Identity(
        "a bandwidth is that of its regimes",
        ("one_cpu_mb_s", "two_cpus_mb_s"),
        lambda v: v["two_cpus_mb_s"] + v["one_cpu_time_percent"] / 100 * (v["one_cpu_mb_s"] - v["two_cpus_mb_s"]),
        told("bandwidth_mb_s"),
        1e-3,
    ),
    Identity("phases sum up to a step", ("time_us", *PHASES), lambda v: sum(v[of] for of in PHASES), told("time_us")),
    Identity("shares of the TLB", ("tlb_share_text_percent",), *shares("tlb_share_")),
    Identity("shares of misses of the hash table", ("hash_misses_text_percent",), *shares("hash_misses_")),
    Identity(
        "misses by use are all misses",
        ("tlb_misses_text",),
        lambda v: sum(v[f"tlb_misses_{use}"] for use in USES),
        told("tlb_misses_total"),
    ),
    Identity(
        "misses by reference",
        ("misses_per_million_references",),
        lambda v: v["misses_per_million_references"] * v["references"] / 1e6,
        told("tlb_misses_total"),
    ),
    *(
        Identity(
            f"{rate} over the time",
            (rate, "wall_s"),
            lambda v, rate=rate, scale=scale: v[rate] * v["wall_s"] * scale,
            told(count),
        )
        for rate, count, scale in (
            ("million_references_per_s", "references", 1e6),
            ("tlb_misses_per_s", "tlb_misses_total", 1),
            ("hash_misses_per_s", "hash_misses", 1),
        )
    ),
    Identity("two words for a time", ("wall_s", "elapsed_us"), lambda v: v["wall_s"] * 1e6, told("elapsed_us")),
]


def runs(folder: Path) -> Iterator[tuple[str, Values]]:
    """Each run in words, and its results."""
    found = measured.values(folder)
    columns = ("run", "experiment", "machine", "kernel", "seed", "settings")
    for run, experiment, machine, kernel, seed, settings in measured.rows(folder, "runs.csv", columns):
        of = json.loads(settings)
        words = " ".join(f"{key}={value}" for key, value in of.items())
        numbers = {f"set.{key}": float(value) for key, value in of.items() if isinstance(value, int | float)}
        yield f"{experiment} on {machine} under {kernel}, seed {seed}: {words}", found[run] | numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true", help="fail where an identity is about no run, too")
    given = parser.parse_args()
    asked, broken = Counter[str](), 0
    for words, values in runs(given.folder):
        for identity in IDENTITIES:
            if not all(name in values for name in identity.needs):
                continue
            asked[identity.name] += 1
            is_, should = identity.of(values), identity.should_be(values)
            if abs(is_ - should) > max(identity.absolute, identity.relative * abs(should)):
                broken += 1
                print(f"{identity.name}: {is_:.9g}, expected {should:.9g}\n    {words}")
    unasked = [identity.name for identity in IDENTITIES if given.all and not asked[identity.name]]
    if broken or unasked:
        print(*(f"{name}: about no run" for name in unasked), sep="\n")
        sys.exit(f"{broken} readings are not what their counts say, {len(unasked)} identities are about no run")
    print(f"{len(asked)} identities hold, {sum(asked.values()):,} times")


if __name__ == "__main__":
    main()
