"""What cannot be is an exception that says so, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pageferry as pf
import pytest


@pytest.fixture
def ends() -> Iterator[tuple[pf.Sender, pf.Receiver]]:
    a, b = pf.pair(slots=3, slot_bytes=2 << 20)
    yield a, b
    a.close()
    b.close()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"slots": 0}, "slots.*1 to 4096"),
        ({"slots": 5000}, "slots.*1 to 4096"),
        ({"slots": -1}, "out of its range"),
        ({"slots": 1.5}, "out of its range"),
        ({"slot_bytes": 0}, "slot_bytes"),
        ({"slot_bytes": 1 << 62}, "slot_bytes"),
        ({"slot_bytes": 1 << 70}, "out of its range"),
        ({"slots": 4096}, "budget"),
        ({"capacity": 3}, "capacity.*power of two"),
        ({"capacity": 0}, "capacity"),
        ({"inline_bytes": 7}, "inline_bytes.*multiple of 64"),
        ({"level": "leased"}, 'expected "mmu", "sealed" or "copy"'),
        ({"level": None}, "out of its range"),
        ({"timeout": -1}, "seconds from 0 on"),
        ({"timeout": float("nan")}, "seconds from 0 on"),
        ({"timeout": "5"}, "out of its range"),
        ({"spin_us": -5}, "out of its range"),
    ],
    ids=str,
)
def test_configurations(config: dict[str, Any], says: str) -> None:
    with pytest.raises(pf.UsageError, match=says):
        pf.pair(**config)


def test_unknown_settings() -> None:
    with pytest.raises(TypeError, match="slot"):
        pf.pair(slot=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "says"),
    [
        (10, object, pf.UsageError, "holds references"),
        (10, [("a", "i4"), ("b", "O")], pf.UsageError, "holds references"),
        (-1, "u1", pf.UsageError, "no negative lengths"),
        ((3, -2), "u1", pf.UsageError, "no negative lengths"),
        (10, "no such type", TypeError, "not understood"),
        (7 << 20, "u1", pf.UsageError, "does not fit: the pool has 6291456 bytes"),
        (1 << 62, "f8", (pf.UsageError, OverflowError), "."),
        ("abc", "u1", TypeError, "."),
    ],
    ids=str,
)
def test_arrays_that_cannot_be(
    ends: tuple[pf.Sender, pf.Receiver], shape: Any, dtype: Any, error: Any, says: str
) -> None:
    a, b = ends
    with pytest.raises(error, match=says):
        a.empty(shape, dtype)
    a.send(a.array([1, 2, 3]))
    assert b.recv().tolist() == [1, 2, 3]


def test_sizes_beyond_the_pool(ends: tuple[pf.Sender, pf.Receiver]) -> None:
    a, b = ends
    big = np.zeros(7 << 20, "u1")
    for thing in (big, {"x": big}, bytes(7 << 20), memoryview(bytes(7 << 20)), [bytes(7 << 20)]):
        for how in ("auto", "loan", "copy"):
            with pytest.raises(pf.UsageError, match="does not fit: the pool has 6291456 bytes"):
                a.send(thing, how)  # type: ignore[arg-type]
    with pytest.raises(pf.UsageError, match="does not fit"):
        a.array(big)
    with pytest.raises(pf.UsageError, match="1 or more"):
        a.buffer(0)
    a.send({"x": 1})
    assert b.recv() == {"x": 1}


def test_zero_sizes_objects_and_strange_arrays(ends: tuple[pf.Sender, pf.Receiver]) -> None:
    a, b = ends
    readonly = np.arange(100_000)
    readonly.flags.writeable = False
    things: list[Any] = [
        np.empty(0),
        np.empty((3, 0, 2), "f4"),
        np.array([None, "a", 3], object),
        np.array(5),
        np.arange(200_000)[::3],
        np.arange(240_000).reshape(200, 300, 4)[::2, ::-1, 1:3],
        np.broadcast_to(np.float32(3), (300, 400)),
        readonly,
        np.arange(10).view(np.recarray),
        np.ma.masked_array(np.arange(5), [0, 1, 0, 0, 1]),
        np.lib.stride_tricks.as_strided(np.arange(10), (3, 4), (8, 8)),
        memoryview(b""),
        b"",
        "",
        None,
    ]
    for thing in things:
        for how in ("auto", "loan", "donate", "copy"):
            a.send(thing, how)  # type: ignore[arg-type]
            came = b.recv()
            assert type(came) is type(thing)
            if isinstance(thing, np.ndarray):
                assert came.dtype == thing.dtype and came.shape == thing.shape
                assert (came == thing).all()
                assert came.flags.writeable or type(thing) is not np.ndarray or thing.dtype.hasobject is False
            del came
    for empty in (a.empty(0), a.empty((0, 5)), a.array([]), a.empty((), "V0")):
        a.send(empty)
        assert b.recv().shape == empty.shape


def test_what_cannot_be_pickled(ends: tuple[pf.Sender, pf.Receiver]) -> None:
    a, b = ends
    for thing in (lambda: 1, threading.Lock(), {"x": np.ones(300_000), "f": (at for at in ())}, sys):
        with pytest.raises((TypeError, AttributeError, Exception)) as raised:
            a.send(thing)
        assert "pickle" in str(raised.value)
    with pytest.raises(pf.UsageError, match="contiguous"):
        a.send(memoryview(b"abcdef")[::2])
    a.send("after")
    assert b.recv() == "after"


class Poison:
    """What cannot be loaded."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_what_cannot_be_loaded(ends: tuple[pf.Sender, pf.Receiver]) -> None:
    a, b = ends
    a.send({"x": np.ones(300_000), "y": Poison()})
    a.send("after")
    with pytest.raises(ValueError, match="no number"):
        b.recv()
    assert b.recv() == "after"


@pytest.mark.parametrize("how", ["lend", "", None, 3, "LOAN"])
def test_ways_that_there_are_not(ends: tuple[pf.Sender, pf.Receiver], how: Any) -> None:
    a, b = ends
    with pytest.raises(pf.UsageError, match="expected one of 'auto', 'loan'"):
        a.send(1, how)
    with pytest.raises(pf.UsageError, match="expected 'ro', 'cow' or 'rw'"):
        b.recv(how)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), 1e300])
def test_timeouts(ends: tuple[pf.Sender, pf.Receiver], timeout: float) -> None:
    a, b = ends
    with pytest.raises(pf.UsageError, match="seconds from 0 on"):
        a.send(np.zeros(300_000), timeout=timeout)
    with pytest.raises(pf.UsageError, match="seconds from 0 on"):
        a.empty(5, timeout=timeout)
    with pytest.raises(pf.UsageError, match="seconds from 0 on"):
        b.recv(timeout=timeout)


def test_times_that_are_up(ends: tuple[pf.Sender, pf.Receiver]) -> None:
    a, b = ends
    with pytest.raises(TimeoutError):
        b.recv(timeout=0)
    with pytest.raises(pf.TimedOut):
        b.recv(timeout=0.05)
    for at in range(3):
        a.send(np.full(200_000, at), "loan")
    with pytest.raises(pf.TimedOut, match="4 messages are with the receiver"):
        a.empty(10, timeout=0.05)
    with pytest.raises(pf.TimedOut, match="4 messages are with the receiver"):
        a.send(np.full(200_000, 9), timeout=0)
    assert [b.recv()[0] for _ in range(3)] == [0, 1, 2]
    a.send(np.full(200_000, 9), timeout=5)
    assert b.recv()[0] == 9


def test_parts_of_a_message_that_was_not_finished_go_back() -> None:
    a, b = pf.pair(slots=3, slot_bytes=2 << 20, capacity=4)
    x, y = a.array(np.zeros(200_000)), a.array(np.ones(200_000))
    # Room for the parts, and none for what comes last.
    a.send(0)
    a.send(0)
    with pytest.raises(pf.TimedOut):
        a.send([x, y], "loan", timeout=0.05)
    assert (b.recv(), b.recv()) == (0, 0)
    with pytest.raises(pf.TimedOut):
        b.recv(timeout=0)
    a.send("next")
    assert b.recv() == "next"
    del x, y
    assert pf.outstanding() == []
    a.send([a.empty(200_000), a.empty(200_000)])


def test_ends_that_are_closed(ends: tuple[pf.Sender, pf.Receiver]) -> None:
    a, b = ends
    x = a.array(np.arange(100_000))
    a.send(x, "loan")
    a.close()
    a.close()
    with pytest.raises(pf.UsageError, match="closed"):
        a.send(x)
    with pytest.raises(pf.UsageError, match="closed"):
        a.empty(5)
    y = b.recv()
    with pytest.raises(pf.PeerGone):
        b.recv()
    b.close()
    with pytest.raises(pf.UsageError, match="closed"):
        b.recv()
    assert y[-1] == x[-1] == 99_999
    c, d = pf.pair(slots=1, slot_bytes=1)
    c.close()
    with pytest.raises(pf.UsageError, match="closed"):
        c.send(1)
    with pytest.raises(pf.PeerGone):
        d.recv()


def test_an_array_of_another_channel_is_copied(ends: tuple[pf.Sender, pf.Receiver]) -> None:
    a, b = ends
    c, d = pf.pair(slots=2, slot_bytes=2 << 20)
    x = a.array(np.arange(100_000))
    for how in ("auto", "loan", "donate", "copy"):
        c.send(x, how)  # type: ignore[arg-type]
        assert (d.recv() == x).all()
        a.send({"x": x}, "copy")
        assert (b.recv()["x"] == x).all()


def test_what_was_received_is_sent_on(ends: tuple[pf.Sender, pf.Receiver]) -> None:
    a, b = ends
    c, d = pf.pair(slots=2, slot_bytes=2 << 20)
    a.send(np.arange(100_000), "loan")
    y = b.recv("ro")
    c.send(y)
    z = d.recv()
    z[0] = 5
    assert y[0] == 0 and z[-1] == 99_999


def test_dlpack(ends: tuple[pf.Sender, pf.Receiver]) -> None:
    a, b = ends
    x = a.array(np.arange(200_000, dtype="u1"))
    a.send(x, "loan")
    y = b.recv("cow")
    tensor = np.from_dlpack(y.base)
    assert (tensor == y).all() and tensor.ctypes.data == y.ctypes.data
    del y
    assert tensor[5] == 5 and len(pf.outstanding()) == 2
    del tensor
    assert len(pf.outstanding()) == 1
    a.send(x, "loan")
    y = b.recv("ro")
    with pytest.raises(BufferError, match="read-only"):
        y.base.__dlpack__()
    capsule = y.base.__dlpack__(max_version=(1, 0))
    del y
    assert len(pf.outstanding()) == 2
    del capsule
    assert len(pf.outstanding()) == 1
    assert pf.Loan.__dlpack_device__ is not None


def test_no_descriptors_left() -> None:
    low = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent("""
                import os, resource
                import pageferry as pf
                resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8,) * 2)
                kept = []
                try:
                    for _ in range(20):
                        kept.append(pf.pair(slots=1, slot_bytes=1))
                        kept[-1][0].send(1)
                except OSError as error:
                    print(type(error).__mro__[1].__name__, "NOFILE" in str(error) or error.errno)
            """),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert low.returncode == 0 and low.stdout, low.stderr


def test_without_numpy() -> None:
    program = """
        import sys
        sys.modules["numpy"] = None
        import pageferry as pf
        a, b = pf.pair(slots=4, slot_bytes=1)
        view = a.buffer(100_000)
        view[:2] = b"hi"
        print(a.send(view), bytes(b.recv()[:2]), a.send({"x": [1, b"y" * 50_000]}), len(b.recv()["x"][1]))
        for call in (lambda: a.empty(5), lambda: a.array([1])):
            try:
                call()
            except ImportError as error:
                print(type(error).__name__)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    expected = ["loan", "b'hi'", "copy", "50000", "ModuleNotFoundError", "ModuleNotFoundError"]
    assert done.stdout.split() == expected, done.stderr


SECOND = """
try:
    import pageferry as pf
except ImportError as error:
    print("refused")
else:
    a, b = pf.pair(slots=2, slot_bytes=1)
    a.send(a.buffer(100_000))
    print(b.recv().nbytes)
    try:
        b.recv(timeout=0)
    except pf.TimedOut:
        print("late")
"""


def test_two_interpreters_in_one_process() -> None:
    """A second interpreter is refused, or has ends of its own."""
    program = f"""
        import pageferry
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        of = interpreters.create()
        interpreters.run_string(of, {SECOND!r})
        a, b = pageferry.pair(slots=2, slot_bytes=1)
        a.send(b"here")
        print(b.recv())
        interpreters.destroy(of)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stdout.split() in (["refused", "b'here'"], ["100000", "late", "b'here'"]), (done.stdout, done.stderr)
