"""Ends in other processes: every way to start one, and every way for one to end."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import numpy as np
import pageferry as pf
import pytest

METHODS = ["fork", "spawn", "forkserver"]


def double(b: pf.Receiver, back: pf.Sender) -> None:
    for array in b:
        array *= 2
        back.send(array)


@pytest.mark.parametrize("method", METHODS)
def test_a_child_has_an_end(method: Any) -> None:
    context = multiprocessing.get_context(method)
    there, b = pf.pair(slots=4, slot_bytes=2 << 20)
    a, back = pf.pair(slots=4, slot_bytes=2 << 20)
    child = context.Process(target=double, args=(b, a))
    child.start()
    for at in range(20):
        x = there.empty(100_000 * (at % 3 + 1), "i8")
        x[...] = at
        there.send(x)
        y = back.recv()
        assert (y == 2 * at).all() and (x == at).all()
        del x, y
    with pytest.raises(pf.UsageError, match="another process"):
        b.recv(timeout=0)
    there.close()
    with pytest.raises(EOFError):
        back.recv(timeout=30)
    child.join()
    assert child.exitcode == 0
    back.close()


def through_a_queue(queue: Any, taken: Any) -> None:
    b = queue.get()
    taken.set()
    queue.close()
    assert b.recv(timeout=30).sum() == 100_000


@pytest.mark.parametrize("method", METHODS)
def test_an_end_goes_through_a_queue(method: Any) -> None:
    context = multiprocessing.get_context(method)
    a, b = pf.pair(slots=2, slot_bytes=2 << 20)
    queue, taken = context.Queue(), context.Event()
    child = context.Process(target=through_a_queue, args=(queue, taken))
    child.start()
    queue.put(b)
    # A queue pickles in a thread, some time later; to use the other end first would bind both here.
    assert taken.wait(60)
    a.send(np.ones(100_000))
    child.join()
    assert child.exitcode == 0
    queue.close()
    queue.join_thread()


def test_an_end_in_use_does_not_travel() -> None:
    a, b = pf.pair(slots=1, slot_bytes=1)
    a.send(1)
    for end in (a, b):
        with pytest.raises(pf.UsageError, match="before its first use"):
            pickle.dumps(end)
    c, d = pf.pair(slots=1, slot_bytes=1)
    d.close()
    with pytest.raises(pf.UsageError, match="closed"):
        pickle.dumps(d)
    with pytest.raises(pf.PeerGone):
        c.send(1)


def in_child(act: Any) -> int:
    """What a forked child makes of it: 0 where all it asserts holds."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_is_refused_and_keeps_its_snapshots() -> None:
    a, b = pf.pair(slots=8, slot_bytes=2 << 20)
    x = a.array(np.full(200_000, 1))
    a.send(x)
    y = b.recv()
    z = a.array(np.full(200_000, 5))

    def child() -> None:
        for act in (lambda: a.send(x), lambda: a.empty(10), lambda: b.recv(timeout=1), lambda: a.level):
            with pytest.raises(pf.Forked):
                act()
        assert pf.outstanding() == []
        assert (y == 1).all() and (x == 1).all() and (z == 5).all()
        y[...] = 2
        z[...] = 3
        a.close()
        # A pair of its own.
        c, d = pf.pair(slots=2, slot_bytes=2 << 20)
        c.send(np.zeros(100_000), "loan")
        w = d.recv()
        assert w.sum() == 0 and len(pf.outstanding()) == 1
        del w
        assert pf.outstanding() == []

    assert in_child(child) == 0
    assert (y == 1).all() and (z == 5).all()
    a.send(z)
    assert (b.recv() == 5).all()
    assert (y == 1).all()


def test_a_free_end_is_used_by_one_process() -> None:
    a, b = pf.pair(slots=2, slot_bytes=2 << 20, timeout=20)

    def child() -> None:
        a.send(np.full(100_000, 3))

    reader = threading.Thread(target=lambda: got.append(b.recv(timeout=20)))
    got: list[Any] = []
    pid = os.fork()
    if pid == 0:
        try:
            child()
        finally:
            os._exit(0)
    reader.start()
    reader.join()
    os.waitpid(pid, 0)
    assert (got.pop() == 3).all()
    with pytest.raises(pf.UsageError, match="another process"):
        a.send(1)


def test_nobody_at_the_other_end() -> None:
    a, b = pf.pair(slots=1, slot_bytes=1, timeout=0.3)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(pf.TimedOut, match="was not used within 0.3 s"):
        a.send(1)
    b.close()


def run(program: str, *flags: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *flags, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("where", ["recv", "holding", "empty", "sending"])
def test_a_killed_peer_leaves_nothing(where: str, ending: signal.Signals) -> None:
    a, b = pf.pair(slots=3, slot_bytes=2 << 20)
    c, d = pf.pair(slots=3, slot_bytes=2 << 20)
    pid = os.fork()
    if pid == 0:
        try:
            c.send("ready")
            if where == "recv":
                b.recv()
            elif where == "holding":
                y = b.recv()
                c.send("has it")
                time.sleep(600)
                del y
            elif where == "empty":
                x = [c.empty(100), c.empty(100), c.empty(100)]
                c.send("full")
                c.empty(100)
                del x
            else:
                while True:
                    c.send(np.ones(100_000))
        finally:
            os._exit(0)
    assert d.recv(timeout=60) == "ready"
    if where in ("recv", "holding"):
        a.level
    if where == "holding":
        x = a.array(np.arange(100_000))
        a.send(x, "loan")
        assert d.recv(timeout=60) == "has it"
    if where == "empty":
        assert d.recv(timeout=60) == "full"
    held = d.recv(timeout=60) if where == "sending" else None
    os.kill(pid, ending)
    os.waitpid(pid, 0)
    # What it had sent is received first, and what was received stays.
    with pytest.raises(pf.PeerGone):
        while True:
            d.recv(timeout=60)
    if held is not None:
        assert (held == 1).all()
    if where == "holding":
        for _ in range(5):
            x[0] += 1
            with pytest.raises(pf.PeerGone):
                a.send(x)
        assert x[0] == 5 and x[-1] == 99_999
    a.close()
    b.close()


WAITS = {
    "for a message": "b.recv()",
    "for slots": "a.empty(9)",
    "for the ring": "a.send(1)",
    "for the peer": "c.send(1)",
}


@pytest.mark.parametrize("what", WAITS)
def test_control_c_ends_a_wait(what: str) -> None:
    child = run(f"""
        import os
        import numpy as np
        import pageferry as pf
        what = {what!r}
        c, d = pf.pair(slots=2, slot_bytes=1)
        if os.fork() == 0:
            os._exit(0)
        a, b = pf.pair(slots=2, slot_bytes=1, capacity=4)
        a.send("bound")
        b.recv()
        held = []
        if what == "for slots":
            for at in range(2):
                a.send(np.full(100, at), "loan")
                held.append(b.recv())
        while what == "for the ring":
            try:
                a.send(0, timeout=0)
            except pf.TimedOut:
                break
        print("waits", flush=True)
        try:
            {WAITS[what]}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        while what == "for the ring":
            try:
                b.recv(timeout=0)
            except pf.TimedOut:
                break
        held.clear()
        a.send("whole")
        print(b.recv(), flush=True)
    """)
    assert child.stdout is not None
    assert child.stdout.readline() == "waits\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert out == "interrupted\nwhole\n", (out, err)


@pytest.mark.parametrize("flags", [(), ("-X", "dev"), ("-I",), ("-O",)], ids=str)
def test_an_interpreter_that_ends_holding_things(flags: tuple[str, ...]) -> None:
    """Its threads wait meanwhile, and come back when there is nothing to come back to."""
    child = run(
        """
        import threading, time
        import numpy as np
        import pageferry as pf
        a, b = pf.pair(slots=6, slot_bytes=1)
        x = a.array(np.arange(100_000)); a.send(x); y = b.recv()
        a.send(x); kept = b.recv_message()
        cycle = [x, y]; cycle.append(cycle)
        free = pf.pair(slots=1, slot_bytes=1)
        for call in (b.recv, lambda: [a.empty(1) for _ in range(9)], lambda: free[0].send(1)):
            threading.Thread(target=call, daemon=True).start()
        class Late:
            def __del__(self, y=y, sleep=time.sleep):
                y[0]
                sleep(0.5)
        late = Late()
        time.sleep(0.2)
        print(len(pf.outstanding()) > 3)
        """,
        *flags,
    )
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, "True\n", ""), (out, err)


def test_a_trace_names_the_line() -> None:
    child = run(
        """
        import pageferry as pf
        a, b = pf.pair(slots=2, slot_bytes=1)
        x = a.array([1, 2])
        z = a.array([1, 2])
        try:
            a.array([1])
        except pf.PoolFull as error:
            print(error)
        a.send(x, "loan")
        y = b.recv()
        print([line.where for line in pf.outstanding()])
        """,
        env={**os.environ, "PAGEFERRY_TRACE": "1"},
    )
    out, err = child.communicate(timeout=60)
    first, second = out.splitlines()
    assert "filling for" in first and "at <string>:4" in first and "at <string>:5" in first, (out, err)
    assert second == "['<string>:4', '<string>:5', '<string>:11']", (out, err)


def test_import_is_quick_and_brings_no_numpy() -> None:
    child = run("""
        import sys, time
        began = time.thread_time()
        import pageferry
        took = time.thread_time() - began
        assert "numpy" not in sys.modules and "multiprocessing" not in sys.modules
        print(took)
    """)
    out, err = child.communicate(timeout=60)
    # The bench measures it; here it is only not to be ten times as long.
    assert float(out) < 0.3, (out, err)
