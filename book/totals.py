"""Compares the totals that README and the book tell with those of a reproduction.

    python book/totals.py FILE

FILE holds what `pageferry reproduce` has printed. Each total that is told otherwise is named, with the file and the
line, and the exit code is 1 then. A sentence that is not there any more is named, too.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
CAVEATS = ROOT / "book" / "src" / "caveats.md"
#: A paper's name in the table of a reproduction, and in the book.
PAPERS = {"page-flip": "page flip", "PPC": "PPC", "sf_buf": "sf_buf", "SH-4": "SH-4", "UVM": "UVM"}


class Totals:
    """The totals that a reproduction has printed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.judged = self.find(r"Published results: (\d+) of (\d+) are judged, (\d+) agree, (\d+) are off")
        self.numbers = self.find(r"Predicted numbers: (\d+) of (\d+) agree")
        self.words = self.find(r"Predicted tendencies: (\d+) of (\d+) agree")
        self.calibrated = self.find(r"(\d+) constants are calibrated")
        self.fitted = self.find(r"Calibrated: [^:]*: (\d+) of (\d+) agree")
        #: By paper: released, judged, agree, off, and more.
        row = r"^{} paper +(\d+) +(\d+) +(\d+) +(\d+) "
        self.off = [self.find(row.format(re.escape(name)))[3] for name in PAPERS]

    def find(self, pattern: str) -> list[int]:
        found = re.search(pattern, self.text, re.MULTILINE)
        if found is None:
            sys.exit(f"what was printed has no line like `{pattern}`: expected that of a whole reproduction")
        return [int(number) for number in found.groups()]

    def told(self) -> list[tuple[Path, str, list[int]]]:
        """Sentences that tell totals: the file, the sentence with a place for each number, the numbers."""
        numbers, words = self.numbers[1] - self.numbers[0], self.words[1] - self.words[0]
        papers = ", ".join(f"# of the {name} paper" for name in list(PAPERS.values())[:-1])
        papers += f" and # of the {list(PAPERS.values())[-1]} paper"
        return [
            (README, "Published results: # of # are judged, # agree, # are off", self.judged),
            (README, "Predicted tendencies: # of # agree", self.words),
            (README, "**published results that the papers released**: # of # are judged", self.judged[:2]),
            (README, "**numbers that were predicted, not fitted**: # of # agree", self.numbers),
            (README, "**what the papers say in words**: # of # tendencies agree", self.words),
            (README, "**numbers to which one of # constants was fitted**: # of # agree", self.calibrated + self.fitted),
            (README, "Why # numbers and # tendencies differ", [numbers, words]),
            (CAVEATS, f"There are # such numbers and # such statements: {papers}.", [numbers, words, *self.off]),
        ]


def fault(path: Path, sentence: str, expected: list[int]) -> str | None:
    """What is wrong with a sentence."""
    text = path.read_text()
    parts = [r"\s+".join(map(re.escape, part.split(" "))) for part in sentence.split("#")]
    found = re.search(r"(\d+)".join(parts), text)
    name = path.relative_to(ROOT)
    if found is None:
        return f"{name}: it does not say `{sentence}`, with a number at each #"
    said = [int(number) for number in found.groups()]
    line = text.count("\n", 0, found.start()) + 1
    return None if said == expected else f"{name}:{line}: `{sentence}` says {said}: expected {expected}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    totals = Totals(parser.parse_args().file.read_text())
    faults = [found for told in totals.told() if (found := fault(*told))]
    for found in faults:
        print(found, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
