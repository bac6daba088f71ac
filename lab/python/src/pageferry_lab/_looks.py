"""How lines look: the colours, marks and dashes that the report of pageferry has for each meaning.

They are those of ``lab/report/src/looks.rs``, on a light page; a test holds the two together.
"""

from __future__ import annotations

from typing import NamedTuple


class Look(NamedTuple):
    """What one meaning is drawn as."""

    colour: str
    #: A marker of matplotlib.
    mark: str
    #: Marks are outlines.
    hollow: bool
    #: Dashes and gaps, in pixels; none for a line without gaps.
    dash: tuple[float, ...]


class Series(NamedTuple):
    """A name and all that is derived from it."""

    name: str
    colour: str
    mark: str
    dash: str
    #: The dashes of its hollow kin.
    other_dash: str


MARKS = {
    "Circle": "o",
    "Square": "s",
    "Up": "^",
    "Down": "v",
    "Left": "<",
    "Right": ">",
    "Cross": "X",
    "Plus": "P",
    "Star": "*",
    "Pentagon": "p",
}

COLOURS = {
    "copy": "#b96a00",
    "loan": "#2b8cc4",
    "transfer": "#00806a",
    "both": "#00418a",
    "pass-loan": "#9a2f7c",
    "pass": "#c0609a",
    "socket": "#c2410c",
    "map": "#524400",
    "auto": "#3a434b",
    "lookup": "#444e9a",
    "space": "#6a3400",
    "amap": "#47a50a",
    "fork": "#4a1a2a",
    "original": "#8f959a",
    "sf-buf": "#0072b2",
    "sf-buf-shared": "#123f55",
    "o0": "#6d4c9f",
    "o1": "#2f7f8f",
    "o2": "#9a5b4a",
    "o3": "#5f7a1f",
    "o4": "#8f3f7f",
    "o5": "#4f5f8f",
    "local-cached": "#f0997c",
    "local": "#d8481f",
    "shoot": "#6d1f4f",
}

SERIES = (
    Series("copy", "copy", "Circle", "", "14 4"),
    Series("loan", "loan", "Square", "8 3", "8 3 1.5 3"),
    Series("transfer", "transfer", "Up", "2.5 3", "2.5 3 2.5 7"),
    Series("flip", "transfer", "Up", "2.5 3", "2.5 3 2.5 7"),
    Series("both", "both", "Star", "10 3 2.5 3", "10 3 2.5 3 2.5 3"),
    Series("pass and loan", "pass-loan", "Left", "12 3 2.5 3 2.5 3", "12 6 2.5 6"),
    Series("pass", "pass", "Down", "12 3 4 3", "12 3 4 3 4 3"),
    Series("socket", "socket", "Cross", "5 4", "5 4 1.5 4"),
    Series("map", "map", "Pentagon", "6 2 1.5 2", "6 5 1.5 5"),
    Series("auto", "auto", "Plus", "1.5 3", "1.5 6"),
    Series("look-up", "lookup", "Right", "16 3", "16 6"),
    Series("space found", "space", "Left", "6 6", "6 8"),
    Series("amap freed", "amap", "Pentagon", "3 6", "3 9"),
    Series("fork", "fork", "Star", "16 3 2 3", "16 6 2 6"),
    Series("random", "lookup", "Right", "16 3", "16 6"),
    Series("previous", "space", "Left", "6 6", "6 8"),
    Series("proposed", "fork", "Star", "16 3 2 3", "16 6 2 6"),
    Series("monolithic", "amap", "Pentagon", "3 6", "3 9"),
    Series("share", "map", "Pentagon", "6 2 1.5 2", "6 5 1.5 5"),
    Series("donate", "pass", "Down", "12 3 4 3", "12 3 4 3 4 3"),
    Series("quick", "both", "Star", "10 3 2.5 3", "10 3 2.5 3 2.5 3"),
    Series("anflush", "lookup", "Right", "16 3", "16 6"),
    Series("munmap", "space", "Left", "6 6", "6 8"),
    Series("replaced", "fork", "Star", "16 3 2 3", "16 6 2 6"),
    Series("give", "fork", "Star", "16 3 2 3", "16 6 2 6"),
    Series("lend", "lookup", "Right", "16 3", "16 6"),
    Series("container", "pass-loan", "Pentagon", "3 6", "3 9"),
    Series("fbuf", "space", "Left", "6 6", "6 8"),
    Series("Mach", "lookup", "Right", "16 3", "16 6"),
    Series("original", "original", "Cross", "7 4", "7 8"),
    Series("sf_buf", "sf-buf", "Square", "", "14 4"),
    Series("sf_buf-shared", "sf-buf-shared", "Up", "3 3", "3 6"),
    Series("local, entry in cache", "local-cached", "Circle", "", "14 4"),
    Series("local, entry in memory", "local", "Square", "8 3", "8 6"),
    Series("remote", "shoot", "Up", "2.5 3", "2.5 6"),
)

#: What has no name of its own in ``SERIES``.
OTHERS = (
    Series("", "o0", "Circle", "", "14 4"),
    Series("", "o1", "Square", "8 3", "8 6"),
    Series("", "o2", "Up", "2.5 3", "2.5 6"),
    Series("", "o3", "Down", "10 3 2.5 3", "10 6 2.5 6"),
    Series("", "o4", "Plus", "5 4", "5 8"),
    Series("", "o5", "Star", "12 3 4 3", "12 6 4 6"),
)


def looks(names: list[str]) -> dict[str, Look]:
    """A look for each of ``names``, no two the same as long as there are enough.

    A name in the table looks as it says there. One that is of a kind in the table is drawn hollow, or filled where
    another has that look. All others take what has no name of its own.
    """
    found: dict[str, Look] = {}
    for name in names:
        kind = _kind(name)
        own = (
            []
            if kind is None
            else [_look(kind, name != kind.name and not name.startswith("play,")), _look(kind, False)]
        )
        others = [_look(series, hollow) for hollow in (False, True) for series in OTHERS]
        free = [look for look in own + others if look not in found.values()]
        found[name] = free[0] if free else others[len(found) % len(others)]
    return found


def _kind(name: str) -> Series | None:
    """The entry of a name in the table, or of the kind that it names."""
    words = name.replace(",", " ").split()
    exact = (series for series in SERIES if series.name == name)
    return next(exact, next((series for series in SERIES if series.name in words), None))


def _look(series: Series, hollow: bool) -> Look:
    dash = series.other_dash if hollow else series.dash
    return Look(COLOURS[series.colour], MARKS[series.mark], hollow, tuple(float(part) for part in dash.split()))
