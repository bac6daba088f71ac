"""Compares what README shows of the program's output with what it prints.

    python book/readme.py PAGEFERRY FILE

PAGEFERRY is the program. FILE holds what `pageferry reproduce` has printed. Each line that is printed otherwise is
named, with what is printed, and the exit code is 1 then. `...` stands for lines that are left out, and blanks may be
fewer than in wide tables.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
#: What begins a line that is a command, and the program in it.
PROMPT, PROGRAM = "$ ", "cargo run --release -- "
#: What is told of the same command under the other kernel.
ORIGINAL = re.compile(r"`--kernel original`.* takes ([\d.]+) µs, with (\d+) invalidations here and (\d+) on the other")


def words(line: str) -> str:
    return " ".join(line.split())


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """Commands, and the lines that are shown below each."""
    found = []
    for block in re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        lines = block.splitlines()
        if lines and lines[0].startswith(PROMPT + PROGRAM):
            found.append((lines[0].removeprefix(PROMPT + PROGRAM), lines[1:]))
    return found


def is_printed(shown: str, printed: list[str]) -> bool:
    """A line is there as it is shown; of a row of the report's table, its name may go on."""
    line = words(shown)
    if line.endswith("..."):
        return any(other.startswith(line[:-3].rstrip()) for other in printed)
    name, _, rest = shown.partition("  ")
    row = f" {words(rest)}"
    return any(other == line or (other.startswith(name) and other.endswith(row)) for other in printed)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("pageferry")
    arguments.add_argument("file", type=Path)
    given = arguments.parse_args()
    text = README.read_text()

    def prints(command: str) -> str:
        run = subprocess.run([given.pageferry, *command.split()], cwd=README.parent, capture_output=True, text=True)
        return run.stdout if run.returncode == 0 else sys.exit(f"{command}: {run.stderr.strip()}")

    shown = blocks(text)
    if [command.split()[0] for command, _ in shown] != ["pipe", "reproduce"]:
        sys.exit("README.md: expected a block of `pipe`, and one of `reproduce`")
    wrong = []
    for command, lines in shown:
        output = given.file.read_text() if command == "reproduce" else prints(command)
        printed = [words(line) for line in output.splitlines()]
        told = [line for line in lines if line.strip() and words(line) != "..."]
        wrong += [f"`{words(line)}`, not printed by `{command}`" for line in told if not is_printed(line, printed)]
    other = prints(shown[0][0].replace("--kernel sf_buf", "--kernel original"))
    time = re.search(r"^modelled time +([\d.]+) µs$", other, re.MULTILINE)
    flushes = re.search(r"^TLB invalidations +(\d+) local, (\d+) remote issued$", other, re.MULTILINE)
    expected = (time[1], *flushes.groups()) if time and flushes else None
    told = ORIGINAL.search(" ".join(text.split()))
    if told is None or told.groups() != expected:
        wrong.append(f"of `--kernel original`: {told and told.groups()}, expected {expected}")
    for fault in wrong:
        print(f"README.md says {fault}", file=sys.stderr)
    if not wrong:
        print("README.md shows what is printed")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
