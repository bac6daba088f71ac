"""Renews the page of the book on the original kernel's policy of flushing, and its picture.

    python book/flush-policy.py PAGEFERRY FOLDER          runs the sweeps, renews the page
    python book/flush-policy.py PAGEFERRY FOLDER --kept   renews the page from the sweeps in FOLDER
    python book/flush-policy.py PAGEFERRY FOLDER --large  dumps the disk of 512 MB, too

PAGEFERRY is the program, built with --release. FOLDER keeps the sweeps; one that was interrupted goes on from there.
What is between the comments in `src/flush-policy.md` is replaced, and nothing else, and
`src/pictures/flush-policy.svg` is written. Which gains are looked at, and what is published for them, is read from the
experiments and from the paper's numbers: every gain of `sf_buf` over `original` that an experiment judges.
"""

import argparse
import csv
import json
import math
import re
import subprocess
import tomllib
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
SOURCE = HERE / "src"
PAPER = HERE.parent / "lab" / "lab" / "papers" / "sf-buf.toml"
MACHINES = ["xeon-up", "xeon-htt", "xeon-mp", "xeon-mp-htt", "opteron-mp"]
KEY = "kernel.ephemeral."
AT = ["both", "unmap", "map"]
BY = ["user", "page", "range"]
#: What each experiment varies beside the policy, and how often each run is made. Quick runs.
EXPERIMENTS = {
    "bw-pipe": ({}, 5),
    "dd": ({"disk_mb": [128]}, 1),
    "netperf": ({"kernel.net.loopback_mtu_bytes": [1500, 16384]}, 5),
    "postmark": ({}, 5),
}
#: An address from a list for all that is mapped for a moment, one page at a time.
LIST = ["--set", f"{KEY}addresses=free-list", "--set", "kernel.disk.mapping=ephemeral"]
#: How near a published value ours has to be: as in the report.
TOLERANCE = 0.1

Policy = tuple[str, str, str]
POLICIES: list[Policy] = [(at, by, "allocator") for at in AT for by in BY] + [(at, "user", "list") for at in AT]


class Rule:
    """A published gain: of an experiment's metric, on some machines."""

    def __init__(self, experiment: str, compare: dict, number: dict) -> None:
        self.experiment = experiment
        self.id = compare["published"]
        self.machines = compare["machines"]
        self.metric = compare["metric"]
        self.settings = dict(word.split("=") for word in compare.get("set") or [])
        value = number.get("value")
        self.value = value
        self.low, self.high = (number["low"], number["high"]) if value is None else (value, value)

    def published(self) -> str:
        return f"{self.low:+g} %" if self.value is not None else f"{self.low:+g} to {self.high:+g} %"

    def meets(self, gain: float) -> bool:
        if self.value is not None:
            return abs(gain / self.value - 1) <= TOLERANCE
        return self.low <= gain <= self.high


def sweeps(program: Path, folder: Path, experiment: str, kept: bool, more: dict) -> list[list[dict[str, str]]]:
    """The runs with an allocator, of both kernels, and those with a list, of the original."""
    settings, repeat = EXPERIMENTS[experiment]
    settings = settings | more
    of_it = [word for key, values in settings.items() for word in ("--vary", f"{key}={','.join(map(str, values))}")]
    at, by = ["--vary", f"{KEY}flush_at={','.join(AT)}"], ["--vary", f"{KEY}flush_by={','.join(BY)}"]
    found = []
    for name, which in {
        "allocator": ["--kernel", "original,sf_buf", *at, *by],
        "list": ["--kernel", "original", *at, *LIST],
    }.items():
        out = folder / f"{experiment}-{name}"
        if not kept:
            command = [program, "sweep", experiment, "--quick", "--machine", ",".join(MACHINES), *which, *of_it]
            subprocess.run(
                [*command, "--repeat", str(repeat), "--out", out, "--resume"], check=True, stdout=subprocess.DEVNULL
            )
        with (out / "sweep.csv").open(newline="") as text:
            found.append(list(csv.DictReader(text)))
    return found


def middle(runs: list[dict[str, str]], metric: str, wanted: dict[str, str]) -> float:
    values = [float(run[metric]) for run in runs if all(run.get(key, value) == value for key, value in wanted.items())]
    if not values:
        raise SystemExit(f"no run has {wanted}")
    return median(values)


def gains(rule: Rule, policy: Policy, with_allocator: list, with_list: list) -> dict[str, float]:
    """By machine, in percent: both kernels under one policy, as they are one system but for ephemeral mappings."""
    at, by, addresses = policy
    found = {}
    for machine in rule.machines:
        wanted = {"machine": machine, f"{KEY}flush_at": at, f"{KEY}flush_by": by, **rule.settings}
        ours = middle(with_allocator, rule.metric, wanted | {"kernel": "sf_buf"})
        original = with_list if addresses == "list" else with_allocator
        found[machine] = 100 * (ours / middle(original, rule.metric, wanted | {"kernel": "original"}) - 1)
    return found


def percent(gain: float) -> str:
    return f"{gain:+.1f}" if abs(gain) < 9.95 else f"{gain:+.0f}"


def table(columns: dict[str, list[Rule]], found: dict[Policy, dict[Rule, dict[str, float]]]) -> str:
    head = ["flushed at", "by", "addresses from", *columns, "met"]
    published = ["", "", "*published*", *(f"*{rules[0].published()}*" for rules in columns.values()), ""]
    lines = [head, ["---"] * 3 + ["--:"] * (len(columns) + 1), published]
    for policy, of_rules in found.items():
        cells, met, asked = [], 0, 0
        for rules in columns.values():
            values = [(rule, gain) for rule in rules for gain in of_rules[rule].values()]
            within = sum(rule.meets(gain) for rule, gain in values)
            met, asked = met + within, asked + len(values)
            low, high = min(gain for _, gain in values), max(gain for _, gain in values)
            told = f"{percent(low)} %" if len(values) == 1 else f"{percent(low)} to {percent(high)} %"
            cells.append(f"**{told}**" if within == len(values) else f"{told} ({within} of {len(values)})")
        lines.append([*policy, *cells, f"{met} of {asked}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def all_met(columns: dict[str, list[Rule]], found: dict[Policy, dict[Rule, dict[str, float]]]) -> str:
    """Which policies meet all that is published of each experiment, and of all."""
    names = {policy: f"`{policy[0]}` by `{policy[1]}`, {policy[2]}" for policy in found}
    meeting = {}
    for experiment in dict.fromkeys(rule.experiment for rules in columns.values() for rule in rules):
        rules = [rule for rules in columns.values() for rule in rules if rule.experiment == experiment]
        meeting[experiment] = [
            policy
            for policy, of_rules in found.items()
            if all(rule.meets(gain) for rule in rules for gain in of_rules[rule].values())
        ]
    lines = [
        f"* `{experiment}`: {'; '.join(names[policy] for policy in policies) or 'none'}."
        for experiment, policies in meeting.items()
    ]
    at_once = [policy for policy in found if all(policy in policies for policies in meeting.values())]
    lines.append(f"* All of them at once: {'; '.join(names[policy] for policy in at_once) or 'none'}.")
    return "All that is published is met by these policies:\n\n" + "\n".join(lines) + "\n"


STYLE = """svg{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI","Helvetica Neue",Arial,sans-serif}
text{fill:#1d2429;font-size:13px}.title{font-size:18px;font-weight:650}.name,.tick{fill:#5a666e;font-size:12px}
.page{fill:#fff}.grid{stroke:#d9dfe3}.rail{stroke:#eef1f3}.band{fill:#14708c;fill-opacity:.13}
.aim{stroke:#14708c;stroke-width:2}.agrees{fill:#14708c}.differs{fill:#fff;stroke:#b3261e;stroke-width:1.6}"""


def picture(columns: dict[str, list[Rule]], found: dict[Policy, dict[Rule, dict[str, float]]]) -> str:
    """A row for each policy, a column for each experiment; a dot for each machine, a band for what is published."""
    left, top, width, step, gap = 190, 86, 190, 26, 18
    experiments: dict[str, list[Rule]] = {}
    for rules in columns.values():
        experiments.setdefault(rules[0].experiment, []).extend(rules)
    every = [gain for of_rules in found.values() for of_rule in of_rules.values() for gain in of_rule.values()]
    least, most = min(-10, *every), max(100, *every)
    span = math.log(1 + most / 100) - math.log(1 + least / 100)
    wide, tall = left + len(experiments) * (width + gap), top + step * len(found) + 46

    def across(column: int, gain: float) -> str:
        share = (math.log(1 + gain / 100) - math.log(1 + least / 100)) / span
        return f"{left + column * (width + gap) + share * width:.1f}"

    out = [
        f'<svg viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}" xmlns="http://www.w3.org/2000/svg">',
        f'<style>{STYLE}</style><rect class="page" width="{wide}" height="{tall}"/>',
        '<text class="title" x="12" y="26">What sf_buf gains over each policy of flushing</text>',
        '<text class="name" x="12" y="46">A dot is a machine, full where it is as published; bands and lines are what '
        "is published. The scale is that of ratios.</text>",
    ]
    bottom = top + step * len(found)
    for column, (experiment, rules) in enumerate(experiments.items()):
        out.append(f'<text x="{across(column, least)}" y="{top - 14}">{experiment}</text>')
        for low, high in dict.fromkeys((rule.low, rule.high) for rule in rules):
            x = across(column, low)
            if low == high:
                out.append(f'<line class="aim" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>')
            else:
                size = float(across(column, high)) - float(x)
                out.append(f'<rect class="band" x="{x}" y="{top}" width="{size:.1f}" height="{bottom - top}"/>')
        for tick in [0, 50, 100, 200, 400, 800, 1600]:
            if tick <= most:
                x = across(column, tick)
                out.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>')
                out.append(f'<text class="tick" x="{x}" y="{bottom + 18}" text-anchor="middle">{tick}</text>')
    out.append(f'<text class="name" x="{left}" y="{bottom + 38}">gain, %</text>')
    for row, (policy, of_rules) in enumerate(found.items()):
        y = top + step * row + step / 2
        at, by, addresses = policy
        name = f"{at}, {by}" if addresses == "allocator" else f"{at}, a list"
        out.append(f'<text x="12" y="{y + 4:.0f}">{name}</text>')
        for column, rules in enumerate(experiments.values()):
            ends = [across(column, end) for end in (least, most)]
            out.append(f'<line class="rail" x1="{ends[0]}" x2="{ends[1]}" y1="{y}" y2="{y}"/>')
            for rule in rules:
                for machine, gain in of_rules[rule].items():
                    kind = "agrees" if rule.meets(gain) else "differs"
                    told = f"{machine}: {percent(gain)} %, published {rule.published()}"
                    place = f'cx="{across(column, gain)}" cy="{y}"'
                    out.append(f'<circle class="{kind}" {place} r="4"><title>{told}</title></circle>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("pageferry", type=Path)
    options.add_argument("folder", type=Path)
    options.add_argument("--kept", action="store_true")
    options.add_argument("--large", action="store_true")
    given = options.parse_args()
    numbers = {number["id"]: number for number in tomllib.loads(PAPER.read_text())["number"]}
    listed = subprocess.run([given.pageferry, "experiments", "--json"], check=True, capture_output=True)
    told = json.loads(listed.stdout)
    columns: dict[str, list[Rule]] = {}
    runs = {}
    for experiment, (settings, _) in EXPERIMENTS.items():
        more = {"disk_mb": [128, 512]} if given.large and experiment == "dd" else {}
        runs[experiment] = sweeps(given.pageferry, given.folder, experiment, given.kept, more)
        for compare in told[experiment]["compare"]:
            if (compare["how"], compare["kernel"], compare.get("over")) != ("gain", "sf_buf", "original"):
                continue
            rule = Rule(experiment, compare, numbers[compare["published"]])
            swept = (settings | more).get("disk_mb")
            if swept is None or int(rule.settings["disk_mb"]) in swept:
                columns.setdefault(re.sub("^sfbuf-|-gain|-xeon$", "", rule.id), []).append(rule)
    rules = [rule for of_column in columns.values() for rule in of_column]
    found = {
        policy: {rule: gains(rule, policy, *runs[rule.experiment]) for rule in rules} for policy in POLICIES
    }
    (SOURCE / "pictures" / "flush-policy.svg").write_text(picture(columns, found))
    page_file = SOURCE / "flush-policy.md"
    figure = "![What sf_buf gains over each policy](pictures/flush-policy.svg)"
    measured = f"\n{figure}\n\n{table(columns, found)}\n{all_met(columns, found)}\n"
    block = re.compile(r"(<!-- measured -->\n).*?(<!-- / -->)", re.DOTALL)
    page, places = block.subn(lambda at: f"{at[1]}{measured}{at[2]}", page_file.read_text())
    if places != 1:
        raise SystemExit(f"{page_file}: {places} places, expected `<!-- measured -->` to `<!-- / -->` once")
    page_file.write_text(page)


if __name__ == "__main__":
    main()
