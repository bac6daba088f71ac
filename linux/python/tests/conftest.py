"""What every test must leave as it was: descriptors, memory of the library's, processes, loans."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pageferry as pf
import pytest


def descriptors() -> dict[int, str]:
    """What the process has open, but for what interpreters keep once it was used."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass
    return found


def memory() -> list[str]:
    """Mappings of the library's memory."""
    with open("/proc/self/maps") as maps:
        return [line for line in maps if "memfd:pageferry" in line]


def children() -> list[str]:
    with open("/proc/self/task/{0}/children".format(os.getpid())) as file:
        return file.read().split()


@pytest.fixture(autouse=True, scope="session")
def _warm() -> Iterator[None]:
    # What is opened once and kept: the page map, the spare descriptor for children.
    a, b = pf.pair(slots=1, slot_bytes=1)
    a.send(b"x" * 100_000)
    b.recv()
    a.close()
    b.close()
    del a, b
    gc.collect()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_failed] = report.failed
    return report  # type: ignore[return-value]


_failed = pytest.StashKey[bool]()


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    gc.collect()
    # Services of multiprocessing's start with their first use, and stay: they are started by `forkserver` tests.
    before, processes = descriptors(), set(children())
    yield
    # The traceback of a test that failed holds what the test held.
    if request.node.stash.get(_failed, False):
        return
    gc.collect()
    assert pf.outstanding() == []
    ours = {fd: of for fd, of in descriptors().items() if before.get(fd) != of}
    left = {fd: of for fd, of in ours.items() if "memfd:pageferry" in of or "seqpacket" in of or "eventfd" in of}
    assert not left, left
    assert memory() == []
    gone = set(children()) - processes
    named = {pid: _name(pid) for pid in gone}
    helpers = ("resource_tracker", "forkserver")
    assert not {pid for pid, name in named.items() if not any(helper in name for helper in helpers)}, named


def _name(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().replace("\0", " ")
    except OSError:
        return ""
