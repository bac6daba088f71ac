"""The command ``pageferry``: where it is, how it is run, and what it says when something is wrong."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


class PageferryError(Exception):
    """Something that went wrong in the command, or on the way to it."""


class CommandNotFound(PageferryError):
    """There is no ``pageferry`` here."""


class CommandError(PageferryError):
    """The command refused what it was asked for; the message is its own."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        #: The exit code: 2 for bad input, and the number of a signal below zero.
        self.code = code


class LawBroken(CommandError):
    """A run broke a law that every run obeys: its numbers are not to be trusted."""


@dataclass(frozen=True)
class Progress:
    """One run of a sweep is over."""

    #: So many are, this one included.
    done: int
    #: So many there are.
    total: int
    #: The run in a few words: experiment, machine, kernel, settings.
    run: str
    #: How long it took, or that it was kept from an interrupted sweep.
    outcome: str
    #: How long the rest takes, as far as that can be told: ``2 minutes``.
    left: str | None


#: What is told of a sweep that goes on: nothing, a line on standard error that changes, or a call for each run.
Told = bool | Callable[[Progress], None]

_FINISHED = re.compile(r"^ *(\d+) of (\d+)(?:, (.+?) left)?  (.+?)  (\S.*)$")


def command() -> str:
    """The path of the command that is run.

    It is that of the environment's ``PAGEFERRY``, or else the one on ``PATH``, or else the one beside the Python that
    runs, as in a virtual environment.

    Raises:
        CommandNotFound: There is none, or ``PAGEFERRY`` names something that cannot be run.
    """
    if named := os.environ.get("PAGEFERRY"):
        if found := shutil.which(named):
            return found
        raise CommandNotFound(f"PAGEFERRY is {named}, which is no program that can be run")
    if found := shutil.which("pageferry"):
        return found
    beside = Path(sys.executable).parent / "pageferry"
    if found := shutil.which(str(beside)):
        return found
    raise CommandNotFound(
        f"there is no `pageferry` on PATH or in {beside.parent}; build it with `cargo install --path lab/cli`, or say "
        "in PAGEFERRY where it is"
    )


def call(arguments: Sequence[str], told: Told = False) -> str:
    """Runs the command; gives what it printed.

    Raises:
        CommandNotFound: There is none.
        LawBroken: A run broke a law.
        CommandError: The command refused what it was asked for, or was ended.
    """
    process = subprocess.Popen(
        [command(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    stdout, stderr = process.stdout, process.stderr
    assert stdout is not None and stderr is not None
    printed: list[str] = []
    reader = threading.Thread(target=lambda: printed.append(stdout.read()), daemon=True)
    reader.start()
    said: list[str] = []
    try:
        for line in stderr:
            finished = _FINISHED.match(line.rstrip("\n"))
            if finished is None:
                said.append(line)
            elif told:
                done, total, left, run, outcome = finished.groups()
                progress = Progress(int(done), int(total), run, outcome, left)
                (_tell if told is True else told)(progress)
        code = process.wait()
        reader.join()
    except BaseException:
        # Also when the caller is interrupted: it takes back what is half-written.
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
    finally:
        reader.join()
        stdout.close()
        stderr.close()
    if code != 0:
        kind = LawBroken if code == 1 else CommandError
        raise kind(_message("".join(said)) or f"`pageferry {' '.join(arguments)}` ended with {code}", code)
    return printed[0]


def _message(said: str) -> str:
    """What the command says is wrong, without its name before it, and what it said of parts before that."""
    before, found, message = said.rpartition("pageferry: ")
    if not found:
        return said.removeprefix("error: ").strip()
    parts = "".join(line for line in before.splitlines(keepends=True) if line.startswith("part "))
    return (parts + message).strip()


def _tell(progress: Progress) -> None:
    left = f", {progress.left} left" if progress.left else ""
    line = f"{progress.done} of {progress.total} runs{left}"
    if sys.stderr.isatty():
        end = "\n" if progress.done == progress.total else ""
        print(f"\r\x1b[K{line}", end=end, file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)
