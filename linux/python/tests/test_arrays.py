"""Arrays and objects: what arrives is what was sent, and stays so."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from typing import Any

import numpy as np
import pageferry as pf
import pytest


def pair(**config: Any) -> tuple[pf.Sender, pf.Receiver]:
    return pf.pair(**{"slots": 4, "slot_bytes": 2 << 20, **config})


RECORD = np.dtype([("t", "M8[ns]"), ("x", "f4", (3,)), ("name", "S7")])
DTYPES = ["u1", "?", "<i2", ">i4", "f2", "f8", "c16", "M8[us]", "m8[s]", "U3", "S5", "V9", RECORD]
SHAPES = [(0,), (1,), (7,), (300, 0, 2), (3, 5), (200, 300), (2, 3, 50_000), ()]


def sample(dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype="i8"))
    raw = np.random.default_rng(7).integers(1, 120, count * dtype.itemsize, dtype="u1")
    if dtype == np.dtype("?"):
        raw &= 1
    if dtype.kind == "U":
        raw = np.frombuffer(np.frombuffer(raw.tobytes(), "u1")[: count * 3].astype("<u4").tobytes(), "u1")
    return np.frombuffer(raw.tobytes(), dtype, count).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_and_shape_arrives(dtype: Any, shape: tuple[int, ...]) -> None:
    a, b = pair(slots=16)
    given = sample(dtype, shape)
    for mode in ("ro", "cow", "rw"):
        for how in ("auto", "loan", "donate", "copy"):
            for source in (given, given.T, a.array(given)):
                was = source.copy()
                a.send(source, how)
                came = b.recv(mode)
                assert came.dtype == was.dtype and came.shape == was.shape
                assert came.tobytes() == was.tobytes()
                assert came.flags.writeable == (mode != "ro")
                del came


def test_an_array_is_a_snapshot_both_ways() -> None:
    a, b = pair()
    x = a.empty((1000, 1000), "u1")
    x[...] = 1
    assert a.send(x) == "loan"
    x[0, 0] = 2
    y = b.recv()
    y[1, 1] = 3
    assert (y[0, 0], x[1, 1], x[0, 0]) == (1, 1, 2)
    # What is sent again is what it is now.
    a.send(x)
    z = b.recv()
    assert (z[0, 0], z[1, 1], y[0, 0], y[1, 1]) == (2, 1, 1, 3)
    del y, z
    a.send(x)
    assert b.recv()[0, 0] == 2


def test_what_is_sent_again_unchanged_goes_as_it_is() -> None:
    a, b = pair()
    x = a.array(np.arange(500_000))
    for _ in range(20):
        assert a.send(x) == "loan"
        y = b.recv()
        assert y.base.verb == "loan" and y.base.address % 4096 == 0
        assert y[-1] == 499_999
        del y
    assert b._end.counters()[1] == 0


def test_a_base_is_the_loan() -> None:
    a, b = pair()
    a.send(np.zeros(500_000))
    y = b.recv("ro")
    assert isinstance(y.base, pf.Loan) and y.base.readonly and y.base.nbytes == y.nbytes
    assert y.base.address == y.ctypes.data
    assert [line.what for line in pf.outstanding()] == ["received, lent"] or y.base.verb == "copy"


def test_memory_goes_home_with_the_last_export() -> None:
    a, b = pair()
    x = a.array(np.arange(400_000))
    a.send(x)
    y = b.recv()
    part, flat = y[5:10], memoryview(y).cast("B")
    home = weakref.ref(y.base)
    del y
    gc.collect()
    assert home() is not None and part.sum() == 35 and flat[40] == 5
    del part
    assert home() is not None
    flat.release()
    del flat
    assert home() is None
    del x
    assert pf.outstanding() == []


def test_memory_in_a_cycle_goes_home_when_it_is_collected() -> None:
    a, b = pair()
    a.send(np.zeros(400_000), "loan")
    gc.disable()
    try:
        cycle: list[Any] = [b.recv()]
        cycle.append(cycle)
        del cycle
        assert len(pf.outstanding()) == 1
        gc.collect()
        assert pf.outstanding() == []
    finally:
        gc.enable()


def test_nothing_of_ours_is_a_cycle() -> None:
    a, b = pair(slots=16)
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            x = a.empty(400_000, "u1")
            x[...] = 1
            a.send(x)
            a.send({"x": x, "y": np.zeros(300_000), "z": [x[3:9]]})
            a.send(np.zeros(300_000))
            del x
            for _ in range(3):
                b.recv()
        assert pf.outstanding() == []
    finally:
        gc.enable()


def test_a_pool_that_cycles_hold_is_found_again() -> None:
    a, b = pair(slots=2)
    gc.disable()
    try:
        for _ in range(10):
            cycle: list[Any] = [a.empty(1000, "u1")]
            cycle.append(cycle)
            del cycle
    finally:
        gc.enable()
    gc.collect()


def test_a_message_is_given_back_at_once() -> None:
    a, b = pair()
    a.send(np.arange(400_000), "loan")
    with b.recv_message() as m:
        assert m.array.sum() == 400_000 * 399_999 // 2 and m.nbytes == 3_200_000
    assert pf.outstanding() == []
    with pytest.raises(pf.UsageError, match="given back"):
        m.array
    a.send({"x": np.arange(400_000), "y": 1}, "loan")
    m = b.recv_message("ro")
    value = m.value
    with pytest.raises(BufferError, match="still lie"):
        m.release()
    assert value["x"][-1] == 399_999
    del value
    m.release()
    a.send(np.zeros(300_000), "loan")
    with pytest.raises(BufferError, match="still lie"):
        with b.recv_message() as m:
            kept = m.array
    assert kept.sum() == 0
    a.send(np.zeros(300_000), "loan")
    with b.recv_message() as m:
        m.release()
    a.send(np.zeros(300_000), "loan")
    with pytest.raises(KeyError):
        with b.recv_message() as m:
            kept = m.array
            raise KeyError


def test_nested_objects() -> None:
    a, b = pair(slots=8)
    x = a.array(np.arange(300_000, dtype="i4"))
    shared = np.ones(70_000)
    thing = {
        "x": x,
        "again": x,
        "list": [shared, shared[::7], shared[10:20], np.float64(3), np.array(["a", None], object)],
        "text": "é" * 50_000,
        "bytes": b"\0\1" * 400_000,
        ("k", 1): bytearray(b"abc" * 1000),
        "empty": np.empty((0, 3)),
        "fortran": np.asfortranarray(np.arange(100_000).reshape(200, 500)),
    }
    for mode in ("ro", "cow", "rw"):
        for how in ("auto", "loan", "copy"):
            a.send(thing, how)
            came = b.recv(mode)
            assert list(came) == list(thing)
            assert (came["x"] == x).all() and came["again"] is came["x"]
            for one, other in zip(came["list"], thing["list"]):
                np.testing.assert_array_equal(one, other)
            assert all(came[key] == thing[key] for key in ("text", "bytes", ("k", 1)))
            assert came["empty"].shape == (0, 3)
            assert came["fortran"].flags.f_contiguous and (came["fortran"] == thing["fortran"]).all()
            assert came["x"].flags.writeable == (mode != "ro")
            del came, one, other


def test_a_view_goes_as_its_own_bytes() -> None:
    a, b = pair(slots=8)
    base = np.zeros((1000, 2000))
    for view in (base[3], base[:, 3], base[::2, ::-1], base[10:12], base.T[5:7]):
        a.send(view)
        y = b.recv()
        held = sum(line.nbytes for line in pf.outstanding())
        assert y.shape == view.shape and held <= y.nbytes + 4096
        del y
    slot = a.empty((1000, 200))
    a.send(slot[500], "loan")
    y = b.recv()
    assert y.nbytes == 1600 and sum(line.nbytes for line in pf.outstanding() if "received" in line.what) <= 4096


def test_donated_memory_is_the_receivers_and_reads_as_zeros() -> None:
    a, b = pair()
    x = a.array(np.full(200_000, 7))
    other = x[:]
    assert a.send(x, "donate") == "donate"
    assert x.sum() == 0 and other.sum() == 0
    x[0] = 5
    with pytest.raises(pf.UsageError, match="given away"):
        a.send(x)
    y = b.recv("rw")
    assert y.base.verb == "donate" and (y == 7).all()
    y[...] = 8
    assert x[0] == 5 and x[1] == 0
    del y
    # The slots stay with the array until it is gone.
    fresh = [a.empty(200_000) for _ in range(3)]
    assert all(array.ctypes.data != x.ctypes.data for array in fresh)
    with pytest.raises(pf.PoolFull, match="donated"):
        a.empty(200_000)
    del x, other, fresh
    a.empty(200_000)


def test_shared_memory_shows_what_is_written_later() -> None:
    a, b = pair()
    x = a.empty(300_000, "u1")
    x[...] = 1
    assert a.send(x, "share") == "share"
    y = b.recv("ro")
    x[7] = 9
    assert y[7] == 9 and not y.flags.writeable and y.base.verb == "share"
    with pytest.raises(pf.UsageError, match="only memory of the channel"):
        a.send(np.zeros(300_000), "share")


def test_modes() -> None:
    a, b = pair()
    x = a.array(np.ones(400_000))
    a.send(x)
    y = b.recv("ro")
    with pytest.raises(ValueError, match="read-only"):
        y[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        y.flags.writeable = True
    del y
    a.send(x)
    y = b.recv("rw")
    # Its bytes are its own: the loan is home already.
    assert [line.what for line in pf.outstanding() if line.what.startswith("rec")] == ["received, lent"]
    y[...] = 2
    assert x.sum() == 400_000


def test_memoryviews_without_numpy() -> None:
    a, b = pair()
    view = a.buffer(300_000)
    view[:3] = b"abc"
    a.send(view, "loan")
    y = b.recv()
    assert isinstance(y, memoryview) and y.nbytes == 300_000 and bytes(y[:3]) == b"abc"
    y[0] = 1
    assert view[0] == ord("a")
    import array

    a.send(memoryview(array.array("d", [1.5, 2.5])).cast("B").cast("d"))
    z = b.recv()
    assert z.format == "d" and z.tolist() == [1.5, 2.5]


def test_threads_share_an_end() -> None:
    a, b = pair(slots=8)
    sums: list[int] = []

    def send(of: int) -> None:
        for at in range(50):
            a.send({"of": of, "x": np.full(20_000 + at, of * 100 + at)})

    def receive() -> None:
        for value in b:
            x = value["x"]
            assert (x == x[0]).all() and x[0] == value["of"] * 100 + len(x) - 20_000
            sums.append(int(x[0]))

    senders = [threading.Thread(target=send, args=(of,)) for of in range(3)]
    receivers = [threading.Thread(target=receive) for _ in range(3)]
    for thread in senders + receivers:
        thread.start()
    for thread in senders:
        thread.join()
    a.close()
    for thread in receivers:
        thread.join()
    assert sorted(sums) == sorted(of * 100 + at for of in range(3) for at in range(50))


def test_a_thread_waits_for_another_no_longer_than_it_says() -> None:
    a, b = pair(slots=2)
    a.send("bound")
    b.recv()
    waits = threading.Thread(target=lambda: b.recv())
    waits.start()
    said = ""
    while "another thread" not in said:
        # Whichever of the two comes first waits for the message, and the other for it.
        with pytest.raises(pf.TimedOut) as raised:
            b.recv(timeout=0.02)
        said = str(raised.value)
    a.send(2)
    waits.join()


def test_threads_bind_both_ends_after_a_fork() -> None:
    """Each over its socket: neither knows that the other is not in the child."""
    import os

    for _ in range(20):
        a, b = pair(slots=1)
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        sends = threading.Thread(target=a.send, args=(5,))
        sends.start()
        assert b.recv(timeout=60) == 5
        sends.join()


def test_more_types_and_shapes_than_are_kept_in_mind() -> None:
    a, b = pair()
    for count in [*range(20_000, 20_200), *range(20_000, 20_030), 20_100, 20_000]:
        a.send(np.full(count, count))
        a.send(np.full(count, count, "f4"))
        for dtype in ("i8", "f4"):
            came = b.recv()
            assert came.dtype == dtype and came.shape == (count,) and (came == count).all()
            del came


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_beside_copies(seed: int) -> None:
    """Whatever is done with arrays, what was received stays what was sent then."""
    rng = random.Random(seed)
    level = rng.choice(["mmu", "mmu", "sealed", "copy"])
    a, b = pair(slots=6, level=level)
    ways = ["auto", "loan", "copy"] + ["donate"] * (level == "mmu")
    mine: list[Any] = []
    sent: list[Any] = []
    held: list[tuple[Any, Any]] = []
    for step in range(300):
        act = rng.randrange(7)
        if act == 0 and len(mine) < 3:
            x = a.empty(rng.choice([1, 100, 4096, 100_000, 700_000]), "u1")
            x[...] = rng.randrange(256)
            mine.append(x)
        elif act == 1 and mine and len(sent) + len(held) < 2:
            x = rng.choice(mine)
            how = rng.choice(["auto", "loan", "copy"])
            sent.append(x.copy())
            a.send(x, how)
        elif act == 2 and len(sent) + len(held) < 2:
            x = np.random.default_rng(step).integers(0, 255, rng.choice([0, 10, 20_000, 300_000]), dtype="u1")
            sent.append(x.copy())
            a.send(x, rng.choice(ways))
            x[...] = 77
        elif act == 3 and sent:
            held.append((b.recv(rng.choice(["ro", "cow", "rw"])), sent.pop(0)))
        elif act == 4 and mine:
            x = rng.choice(mine)
            x[rng.randrange(len(x))] = rng.randrange(256)
        elif act == 5 and held:
            y, was = rng.choice(held)
            if y.flags.writeable and len(y):
                at = rng.randrange(len(y))
                y[at] = was[at] = rng.randrange(256)
        elif act == 6:
            if mine and rng.random() < 0.5:
                mine.pop(rng.randrange(len(mine)))
            elif held:
                held.pop(rng.randrange(len(held)))
        for y, was in held:
            assert (y == was).all()
