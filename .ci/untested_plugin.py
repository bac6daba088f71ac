"""For pytest: what is skipped is counted and named at the end of `.ci/run`, as `.ci/untested` has it."""

import os


def _tell(report):
    path = os.environ.get("PAGEFERRY_UNTESTED")
    if not report.skipped or not path:
        return
    # Where, and why, as pytest.skip and importorskip leave it.
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    with open(path, "a") as file:
        file.write(f"{report.nodeid}: {why.removeprefix('Skipped: ')}\n")


pytest_runtest_logreport = _tell
pytest_collectreport = _tell
