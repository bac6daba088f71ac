"""The interpreter's own tests of ``multiprocessing`` and of process pools, with the drop-in installed.

    python tests/cpython.py             queues, connections, pools and managers: about a minute
    python tests/cpython.py --all       all of them, under fork, spawn and forkserver

Tests that fail with the drop-in run once more, each by itself, with it and without it. Those that fail with it only are
this package's fault; those that fail without it are named, and are the interpreter's on this host; and so are those
that fail at times. Tests that this interpreter was installed without are named as skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

METHODS = ("fork", "spawn", "forkserver")
# What a skipped test's reason follows.
SKIPPED = "skipped: "

# What the short run leaves out of `multiprocessing`: locks, shared values, logging and the like do not pass messages,
# and some tests sleep for seconds. It runs the rest under fork, and what differs under spawn.
SHORT = {
    "fork": (
        "WithProcessesTestQueue",
        "WithProcessesTestConnection",
        "WithProcessesTestPicklingConnections",
        "WithProcessesTestPoll",
        "WithProcessesTestPoolWorkerErrors",
        "WithManagerTestMyManager",
        "WithManagerTestQueue",
        "TestSimpleQueue",
        "TestWait",
        "OtherTest",
        "TestIgnoreEINTR",
        "ChallengeResponseTest",
    ),
    "spawn": ("WithProcessesTestConnection", "TestSimpleQueue", "WithProcessesTestPicklingConnections"),
    "forkserver": ("WithProcessesTestQueue.test_fork", "TestSimpleQueue"),
}

# Of concurrent.futures, by module and words of the test's name.
EXECUTORS = ("test_process_pool", "test_deadlock", "test_shutdown", "test_init", "test_as_completed", "test_wait")
SHORT_EXECUTORS = {"test_process_pool": ("ProcessPoolFork",)}

# They count on what the drop-in changes on purpose.
CHANGED = {
    # It sends a signal to a process that is to wait until its big message is received. A block waits for nobody, so the
    # process may have ended.
    "test_multiprocessing_by_forkserver.TestIgnoreEINTR.test_ignore",
}


class Recorder(unittest.TextTestResult):
    """Keeps how each test went: passed, failed, or skipped and why."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.went = {}

    def startTest(self, test):
        super().startTest(test)
        self.went[test.id()] = "passed"

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.went[test.id()] = "failed"

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.went[test.id()] = "failed"

    def addError(self, test, err):
        super().addError(test, err)
        self.went[test.id()] = "failed"

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.went[test.id()] = "failed"

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.went[test.id()] = f"{SKIPPED}{reason}"


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def run_here(module: str, names: list[str], installed: bool, out: str) -> None:
    """Runs tests of a module in this process; `names` are parts of the tests' names, or none for all."""
    if installed:
        import pageferry.mp

        pageferry.mp.install()
    import test.support

    test.support.verbose = 0
    tests = list(flat(unittest.defaultTestLoader.loadTestsFromName(module)))
    if names:
        chosen = [test for test in tests if any(wanted(name, test.id()) for name in names)]
        if not chosen:
            raise SystemExit(f"{module} has none of {names}: the list in {__file__} is out of date")
        tests = chosen
    result = unittest.TextTestRunner(resultclass=Recorder, verbosity=0).run(unittest.TestSuite(tests))
    if installed:
        assert pageferry.mp.installed()
    Path(out).write_text(json.dumps(result.went))


def wanted(name: str, test: str) -> bool:
    parts = test.split(".")
    if name in parts or name == ".".join(parts[-2:]) or name == test:
        return True
    return any(p.startswith(name) for p in parts[-2:-1])


class Runs:
    """Processes that run tests, below a folder that has the modules which make them."""

    def __init__(self, folder: str, verbose: bool) -> None:
        self.folder, self.verbose = folder, verbose

    def run(self, module: str, names: list[str], installed: bool, limit: float) -> tuple[dict[str, str], str]:
        out = os.path.join(self.folder, "went.json")
        Path(out).unlink(missing_ok=True)
        path = [self.folder, os.environ.get("PYTHONPATH", "")]
        arguments = [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", __file__]
        arguments += ["--module", module, "--out", out]
        arguments += ["--installed"] if installed else []
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
        try:
            done = subprocess.run(
                [*arguments, *names],
                env=environment,
                timeout=limit,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            said, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode(errors="replace")
            said, code = f"{said}\nnot done in {limit:.0f} s", -1
        if self.verbose:
            print(said)
        if not os.path.exists(out):
            return {f"{module} (the whole of it, code {code})": "failed"}, said
        return json.loads(Path(out).read_text()), said


def modules(folder: str) -> dict[str, str]:
    """Makes a module for each start method, as the interpreter's tests have them. By method."""
    made = {}
    for method in METHODS:
        name = f"test_multiprocessing_by_{method}"
        Path(folder, f"{name}.py").write_text(
            "import unittest\n"
            "from test._test_multiprocessing import install_tests_in_module_dict\n"
            f"install_tests_in_module_dict(globals(), {method!r})\n"
        )
        made[method] = name
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all tests, under all start methods")
    parser.add_argument("--verbose", action="store_true", help="what the tests say")
    parser.add_argument("--limit", type=float, default=900, help="seconds for the tests of one module")
    parser.add_argument("--module", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    parser.add_argument("--installed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help="parts of the names of tests of multiprocessing: only those")
    given = parser.parse_args()
    if given.module:
        run_here(given.module, given.names, given.installed, given.out)
        return 0
    if importlib.util.find_spec("test._test_multiprocessing") is None:
        print("this interpreter was installed without its tests of multiprocessing: nothing was tested")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return compare(Runs(folder, given.verbose), modules(folder), given)


def untested(what: str, why: str) -> None:
    """Has it counted and named at the end of `.ci/run`, which says in what file."""
    if path := os.environ.get("PAGEFERRY_UNTESTED"):
        with open(path, "a") as file:
            file.write(f"{what}: {why}\n")


def compare(runs: Runs, by_method: dict[str, str], given: argparse.Namespace) -> int:
    jobs: list[tuple[str, list[str]]] = []
    for method, module in by_method.items():
        if given.names:
            jobs.append((module, given.names))
        else:
            jobs.append((module, [] if given.all else list(SHORT[method])))
    for name in EXECUTORS if given.all else () if given.names else SHORT_EXECUTORS:
        module = f"test.test_concurrent_futures.{name}"
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            print(f"{SKIPPED}this interpreter was installed without {module}")
            untested(module, "this interpreter was installed without it")
        else:
            jobs.append((module, ["ProcessPool"] if given.all else list(SHORT_EXECUTORS[name])))
    faults, passed, skipped = [], 0, 0
    for module, names in jobs:
        began = time.monotonic()
        went, said = runs.run(module, names, True, given.limit)
        failed = [test for test, how in went.items() if how == "failed"]
        passed += sum(how == "passed" for how in went.values())
        for test, how in went.items():
            if how.startswith(SKIPPED):
                skipped += 1
                untested(test, how.removeprefix(SKIPPED))
        print(f"{module}: {len(went)} tests, {len(failed)} failed, {time.monotonic() - began:.0f} s", flush=True)
        if failed and not any(test.startswith(f"{module}.") for test in failed):
            print(said)
        for test in failed:
            if test in CHANGED:
                print(f"  {test}: fails by design")
                continue
            alone = [test] if test.startswith(f"{module}.") else names
            with_it, said = runs.run(module, alone, True, given.limit)
            without, _ = runs.run(module, alone, False, given.limit)
            if "failed" in without.values():
                print(f"  {test}: fails without the drop-in as well")
            elif "failed" not in with_it.values():
                print(f"  {test}: passes when it is run again")
            else:
                print(f"  {test}: FAILS WITH THE DROP-IN ONLY\n{said}")
                faults.append(test)
    print(f"{passed} passed, {skipped} skipped, {len(faults)} fail with the drop-in only")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
