"""Compares what the page on metal shows of `xtask metal` with what it prints.

    python book/metal.py FILE

FILE holds what `metal check`, `metal verify echo --cpus 4 --seed 7` and a part of `metal verify-all` have printed. A
line that the page shows and that is printed with other numbers is named, with what is printed, and the exit code is 1
then. How many lines a planted defect makes differ hangs on the size of QEMU's own TLB, which goes with time: such lines
are left out, and so is the shell.
"""

import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "src" / "metal.md"
#: Commands whose blocks must be printed as they are shown; and lines that need not all be printed.
WHOLE = ("metal check", "metal verify echo --cpus 4 --seed 7")
IN_PART = re.compile(r", ring 3: ")


def masked(line: str) -> str:
    """A line without its counts: a name, or a sentence."""
    return re.sub(r"(?<![\w-])\d+(?![\w-])", "N", line)


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    printed = {" ".join(line.split()) for line in Path(sys.argv[1]).read_text().splitlines()}
    wrong = seen = 0
    for block in re.findall(r"^```\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        command, *shown = block.splitlines()
        is_whole = command.endswith(WHOLE)
        for line in map(" ".join, map(str.split, shown if is_whole else [command, *shown])):
            like = [other for other in printed if masked(other.partition(":")[0]) == masked(line.partition(":")[0])]
            if line == "..." or not (is_whole or (IN_PART.search(line) and like)):
                continue
            seen += 1
            if line not in printed:
                wrong += 1
                instead = " or ".join(f"`{other}`" for other in like) or "no such line"
                print(f"{PAGE.name} shows `{line}`, printed is {instead}")
    if wrong == 0 and seen < 10:
        sys.exit(f"{PAGE.name}: {seen} lines are compared, expected ten or more")
    if wrong == 0:
        print(f"{PAGE.name} shows what is printed, in {seen} lines")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
