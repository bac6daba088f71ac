"""The drop-in for multiprocessing: what arrives, by which start method, and what is left behind."""

from __future__ import annotations

import concurrent.futures
import gc
import io
import multiprocessing
import multiprocessing.connection
import multiprocessing.queues
import multiprocessing.reduction
import os
import pickle
import queue
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from pageferry import _native, mp

METHODS = ["fork", "spawn", "forkserver"]
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    mp.uninstall()
    mp.configure()
    gc.collect()
    mp.trim()
    assert mp.outstanding()["blocks"] == 0


def big(seed: int = 0, count: int = 1 << 20) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 1 << 30, count, dtype="i4")


def used() -> int:
    """Blocks that were filled so far."""
    held = mp.outstanding()
    return held["made"] + held["again"]


def through(kind: str) -> tuple[Callable[[Any], object], Callable[[], Any], Callable[[], None]]:
    """Something to send by and to receive by, within this process."""
    if kind == "pipe":
        receiver, sender = mp.Pipe(duplex=False)
        return sender.send, receiver.recv, lambda: (sender.close(), receiver.close(), None)[-1]
    if kind == "duplex":
        one, other = mp.Pipe()
        return one.send, other.recv, lambda: (one.close(), other.close(), None)[-1]
    if kind == "simple":
        simple = mp.SimpleQueue()
        return simple.put, simple.get, simple.close
    many: Any = mp.Queue() if kind == "queue" else mp.JoinableQueue()

    def close() -> None:
        many.close()
        many.join_thread()
        many._reader.close()

    return many.put, lambda: many.get(timeout=PATIENCE), close


class Buffered:
    """An object whose pickle has a buffer beside it, as data frames have."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        if protocol < 5:
            return Buffered, (bytes(self.data),)
        return Buffered, (pickle.PickleBuffer(self.data),)


class Node:
    """A cycle that holds an array."""

    def __init__(self, array: Any) -> None:
        self.array, self.me = array, self


RECORD = np.dtype([("t", "M8[ns]"), ("x", "f4", (3,)), ("name", "S7")])
OBJECTS: dict[str, Any] = {
    "array": big(),
    "small array": np.arange(10),
    "two dimensions": big().reshape(1024, -1),
    "column order": np.asfortranarray(big().reshape(1024, -1)),
    "every other column": big().reshape(1024, -1)[:, ::2],
    "backwards": big()[::-1],
    "no elements": np.empty((0, 3), "f8"),
    "no dimension": np.array(3.5),
    "records": np.zeros(40_000, RECORD),
    "dates": np.arange(200_000).astype("M8[s]"),
    "objects": np.array([{"a": big(1, 30_000)}, "b", None] * 3, dtype=object),
    "strings": np.array(["word"] * 40_000),
    "big bytes": os.urandom(1 << 20),
    "big string": "a€𝄞" * 300_000,
    "bytearray": bytearray(os.urandom(200_000)),
    "a list of arrays": [big(seed, 50_000) for seed in range(20)],
    "many middling arrays": [big(seed, 5_000) for seed in range(100)],
    "nested": {"x": [big(3), {"y": (big(4, 9), "z")}], "none": None},
    "nothing": None,
    "number": 7,
    "empty": b"",
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return bool(
            type(other) is type(one)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and all(same(*pair) for pair in zip(one.flat, other.flat))
            if one.dtype.hasobject
            else one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(same(*pair) for pair in zip(one, other))
    return type(one) is type(other) and bool(one == other)


@pytest.mark.parametrize("kind", ["pipe", "duplex", "simple", "queue", "joinable"])
def test_every_object_arrives(kind: str) -> None:
    send, receive, close = through(kind)
    for name, given in OBJECTS.items():
        # What does not go by a block is limited by what a socket takes: somebody must receive meanwhile.
        sender = threading.Thread(target=send, args=(given,))
        sender.start()
        found = receive()
        sender.join()
        assert same(given, found), name
        if isinstance(found, np.ndarray) and not found.dtype.hasobject:
            assert found.flags.writeable, name
    assert used() > 10
    close()


def test_what_arrives_is_a_value() -> None:
    send, receive, close = through("pipe")
    given = big()
    send(given)
    send(given)
    given[:] = 1
    one, other = receive(), receive()
    assert same(one, big()) and same(other, big())
    one[:] = 2
    assert same(other, big())
    # What was written to before is not seen by what comes next in the same block.
    del one
    gc.collect()
    send(given)
    assert (receive() == 1).all()
    assert same(other, big())
    del other
    close()


def test_arrays_that_are_read_only_arrive_writable_as_they_always_did() -> None:
    send, receive, close = through("pipe")
    for given in (big(), big(1, 2000), np.broadcast_to(big(2, 1000), (300, 1000))):
        given.flags.writeable = False
        # So does `multiprocessing`, by pickles that have no buffers.
        plain = bytes(multiprocessing.reduction.ForkingPickler.dumps(given))
        assert pickle.DEFAULT_PROTOCOL >= 5 or pickle.loads(plain).flags.writeable
        send(given)
        found = receive()
        assert found.flags.writeable and same(found, np.array(given))
        found[...] = 3
        assert not (given == 3).any()
    close()


def test_buffers_beside_a_pickle() -> None:
    send, receive, close = through("pipe")
    for data in (bytearray(os.urandom(300_000)), bytearray(10), os.urandom(300_000)):
        send(Buffered(data))
        assert bytes(receive().data) == bytes(data)
    close()


def test_one_block_serves_many_messages() -> None:
    send, receive, close = through("pipe")
    for seed in range(50):
        send(big(seed))
        assert same(receive(), big(seed))
    held = mp.outstanding()
    assert held["blocks"] <= 2 and held["out"] == 0
    close()


def test_an_array_keeps_its_block_and_a_cycle_does_until_it_is_collected() -> None:
    send, receive, close = through("pipe")
    send(Node(big()))
    node = receive()
    part = node.array[5:7]
    assert mp.outstanding()["out"] == 1
    gc.disable()
    try:
        del node
        assert mp.outstanding()["out"] == 1
    finally:
        gc.enable()
    gc.collect()
    assert mp.outstanding()["out"] == 1, "a view is there"
    assert part.tolist() == big()[5:7].tolist()
    del part
    assert mp.outstanding()["out"] == 0
    close()


# Bytes


def test_bytes_of_every_size_and_the_calls_that_take_them() -> None:
    receiver, sender = mp.Pipe(duplex=False)
    before = used()
    for length in (0, 1, 3, 4, 65_535, 65_536, 100_000, 3 << 20):
        data = os.urandom(length)
        threading.Thread(target=sender.send_bytes, args=(data,)).start()
        assert receiver.recv_bytes() == data
        threading.Thread(target=sender.send_bytes, args=(bytearray(data), length // 2)).start()
        assert receiver.recv_bytes() == data[length // 2 :]
        threading.Thread(target=sender.send_bytes, args=(memoryview(data), 0, length // 3)).start()
        into = bytearray(length + 5)
        assert receiver.recv_bytes_into(into, 5) == length // 3
        assert into[5 : 5 + length // 3] == data[: length // 3]
    assert used() > before
    sender.send_bytes(np.arange(40_000, dtype="i4"))
    assert receiver.recv_bytes() == np.arange(40_000, dtype="i4").tobytes()
    sender.send_bytes(b"x" * 200_000)
    with pytest.raises(multiprocessing.BufferTooShort) as short:
        receiver.recv_bytes_into(bytearray(10))
    assert short.value.args == (b"x" * 200_000,)
    sender.send_bytes(b"x" * 200_000)
    with pytest.raises(OSError, match="bad message length"):
        receiver.recv_bytes(100_000)
    assert receiver.closed
    sender.close()


def test_what_recv_bytes_gives_is_a_whole_pickle() -> None:
    receiver, sender = mp.Pipe(duplex=False)
    given = {"x": big(), "y": big(2)[::3], "z": b"z" * 100_000}
    sender.send(given)
    data = receiver.recv_bytes()
    assert type(data) is bytes
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert same(pool.apply(pickle.loads, (data,)), given)
    assert pickle.loads(data)["x"].flags.writeable
    for connection in (receiver, sender):
        connection.close()


def test_what_a_queue_has_received_is_loaded_and_handed_on() -> None:
    simple: Any = mp.SimpleQueue()
    simple.put([big(), 5])
    data = simple._reader.recv_bytes()
    assert isinstance(data, bytes) and len(data) < 100
    assert same(pickle.loads(data), [big(), 5])
    # To another of our connections, by pickle, and too late.
    receiver, sender = mp.Pipe(duplex=False)
    sender.send_bytes(data)
    assert same(receiver.recv(), [big(), 5])
    again = pickle.loads(pickle.dumps(data))
    assert same(pickle.loads(again), [big(), 5])
    text = bytes(bytearray(data))
    del data
    with pytest.raises(pickle.UnpicklingError, match="stand for a message"):
        pickle.loads(text)
    for connection in (receiver, sender, simple):
        connection.close()


def test_what_the_pickler_gives_is_bytes_to_everybody_else() -> None:
    given = {"x": big(), "y": [big(4, 1000)] * 3}
    message = mp._Pickler.dumps(given)
    assert type(message) is _native.Pickle
    assert same(pickle.loads(message), given)
    assert same(pickle.loads(bytes(memoryview(message))), given)
    ours, theirs = socket.socketpair()
    connections = [multiprocessing.connection.Connection(end.detach()) for end in (ours, theirs)]
    thread = threading.Thread(target=connections[0].send_bytes, args=(message,))
    thread.start()
    assert same(connections[1].recv(), given)
    thread.join()
    receiver, sender = mp.Pipe(duplex=False)
    sender.send_bytes(message)
    assert same(receiver.recv(), given)
    with pytest.raises(ValueError, match="was sent"):
        sender.send_bytes(message)
    assert mp._Pickler.dumps([1, 2]) == pickle.dumps([1, 2], 5)
    for connection in (*connections, receiver, sender):
        connection.close()


def test_an_object_that_cannot_be_pickled_sends_nothing() -> None:
    receiver, sender = mp.Pipe(duplex=False)
    with pytest.raises((AttributeError, pickle.PicklingError, TypeError)):
        sender.send([big(), lambda: 0])
    sender.send("next")
    assert receiver.recv() == "next"
    assert mp.outstanding()["out"] == 0
    receiver.close()
    sender.close()


# What is missing


def test_what_waits_is_within_the_budget_and_nothing_is_lost_or_out_of_order() -> None:
    mp.configure(budget=16 << 20)
    receiver, sender = mp.Pipe(duplex=False)
    count = 60

    def send() -> None:
        for number in range(count):
            sender.send((number, big(number, 300_000)))

    thread = threading.Thread(target=send)
    thread.start()
    most = 0
    for number in range(count):
        time.sleep(0.005 if number < 10 else 0)
        most = max(most, mp.outstanding()["bytes"])
        found, array = receiver.recv()
        assert found == number and same(array, big(number, 300_000))
    thread.join()
    assert 0 < most <= 16 << 20
    receiver.close()
    sender.close()


def test_a_receiver_that_keeps_everything_uses_up_nothing() -> None:
    mp.configure(budget=16 << 20)
    receiver, sender = mp.Pipe(duplex=False)
    kept = []
    for number in range(50):
        sender.send(big(number, 300_000))
        kept.append(receiver.recv())
    held = mp.outstanding()
    assert held["left"] > 20 and held["bytes"] <= 16 << 20
    assert all(same(array, big(number, 300_000)) for number, array in enumerate(kept))
    del kept
    receiver.close()
    sender.close()


def test_a_process_has_only_so_many_mappings() -> None:
    mp.configure()
    _native.limit_blocks(mapped=3)
    receiver, sender = mp.Pipe(duplex=False)
    kept = []
    for number in range(10):
        sender.send(big(number, 100_000))
        kept.append(receiver.recv())
    assert all(same(array, big(number, 100_000)) for number, array in enumerate(kept))
    with open("/proc/self/maps") as maps:
        assert sum("pageferry-block" in line and " rw-p " in line for line in maps) == 3
    kept[5][0] = 7
    del kept
    sender.send(big())
    last = receiver.recv()
    assert mp.outstanding()["out"] == 1
    del last
    receiver.close()
    sender.close()


def test_idle_memory_is_given_back_while_somebody_waits() -> None:
    mp.configure(budget=64 << 20, kept=8 << 20)
    receiver, sender = mp.Pipe(duplex=False)
    for number in range(8):
        sender.send(big(number))
    for _ in range(8):
        receiver.recv()
    assert mp.outstanding()["bytes"] >= 32 << 20
    threading.Timer(2.5, sender.send, (1,)).start()
    assert receiver.recv() == 1
    assert mp.outstanding()["bytes"] <= 8 << 20
    receiver.close()
    sender.close()


@pytest.fixture
def few_descriptors() -> Iterator[Callable[[int], None]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def leave(count: int) -> None:
        spare = [os.open("/dev/null", os.O_RDONLY) for _ in range(count + 1)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare), before[1]))
        for fd in spare:
            os.close(fd)

    yield leave
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_without_descriptors_a_message_goes_as_bytes(few_descriptors: Callable[[int], None]) -> None:
    receiver, sender = mp.Pipe(duplex=False)
    before = used()
    few_descriptors(0)
    thread = threading.Thread(target=sender.send, args=(big(),))
    thread.start()
    assert same(receiver.recv(), big())
    thread.join()
    assert used() == before or mp.outstanding()["blocks"] == 0
    receiver.close()
    sender.close()


def test_a_receiver_without_descriptors_says_so_and_loses_nothing(few_descriptors: Callable[[int], None]) -> None:
    receiver, sender = mp.Pipe(duplex=False)
    sender.send("first")
    sender.send(big())
    sender.send("last")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few_descriptors(0)
    assert receiver.recv() == "first"
    for _ in range(2):
        with pytest.raises(OSError, match="ulimit -n") as none_left:
            receiver.recv()
        assert none_left.value.errno == 24
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert same(receiver.recv(), big())
    assert receiver.recv() == "last"
    receiver.close()
    sender.close()


# A peer that lies


def forged(header: bytes, descriptors: list[int]) -> mp.Connection:
    ours, theirs = socket.socketpair()
    socket.send_fds(theirs, [header], descriptors)
    theirs.close()
    return mp.Connection(ours.detach())


def memfd(length: int, seals: bool = True, data: bytes = b"") -> int:
    import fcntl

    fd = os.memfd_create("forged", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, length)
    os.pwrite(fd, data, 0)
    if seals:
        fcntl.fcntl(fd, 1033, 0x2)
    return fd


def envelope(parts: int, used: int) -> bytes:
    return struct.pack("!iIQ", -2, parts, used)


TABLE = struct.pack("=4Q", 64, 10, 4096, 1)
FORGED: dict[str, tuple[bytes, Callable[[], list[int]], str]] = {
    "no descriptor": (envelope(1, 100), lambda: [], "one descriptor"),
    "two descriptors": (envelope(1, 100), lambda: [memfd(4096), memfd(4096)], "one descriptor"),
    "a pipe": (envelope(1, 100), lambda: list(os.pipe()[:1]), "not memory"),
    "memory that can shrink": (envelope(1, 100), lambda: [memfd(4096, seals=False)], "not memory with the seals"),
    "laid out, a part beyond the end": (
        struct.pack("!iIQ", -3, 2, 4096) + TABLE + bytes(4096 - 32),
        lambda: [],
        "not in its message",
    ),
    "laid out, a table beyond the end": (struct.pack("!iIQ", -3, 3, 4) + bytes(4), lambda: [], "shorter than was said"),
    "laid out, and cut off": (struct.pack("!iIQ", -3, 2, 1 << 40) + bytes(100), lambda: [], "end of file"),
    "shorter than said": (envelope(0, 5000), lambda: [memfd(4096)], "shorter than was said"),
    "a table beyond the end": (envelope(1000, 4096), lambda: [memfd(4096)], "shorter than was said"),
    "a part beyond the end": (envelope(2, 4096), lambda: [memfd(4096, data=TABLE)], "not in its message"),
    "more parts than there are": (envelope(1 << 25, 4096), lambda: [memfd(4096)], "more parts"),
    "a negative length": (struct.pack("!i", -4), lambda: [], "negative"),
    "half a length": (b"\0\0", lambda: [], "end of file"),
    "half a message": (struct.pack("!i", 10) + b"x", lambda: [], "end of file"),
    "half an envelope": (envelope(1, 100)[:9], lambda: [memfd(4096)], "one descriptor"),
}


@pytest.mark.parametrize("case", FORGED)
def test_what_cannot_be_is_refused(case: str) -> None:
    header, make, expected = FORGED[case]
    fds = make()
    before = set(os.listdir("/proc/self/fd"))
    connection = forged(header, fds)
    with pytest.raises(OSError, match=expected):
        connection.recv()
    connection.close()
    assert set(os.listdir("/proc/self/fd")) == before
    for fd in fds:
        os.close(fd)


# Processes


def echo(receiver: Any, sender: Any) -> None:
    while (given := receiver.get()) is not None:
        sender.put(given)


@pytest.mark.parametrize("how", ["kinds", "context", "installed"])
@pytest.mark.parametrize("method", METHODS)
def test_queues_between_processes(method: str, how: str) -> None:
    context: Any = multiprocessing.get_context(method)
    if how == "context":
        context = mp.get_context(method)
    elif how == "installed":
        mp.install()
    make = (lambda: mp.Queue(ctx=context)) if how == "kinds" else context.Queue
    there, back = make(), make()
    process = context.Process(target=echo, args=(there, back))
    process.start()
    for given in (big(), {"x": [big(1)], "y": "z"}, b"b" * 200_000, 3):
        there.put(given)
        assert same(back.get(timeout=PATIENCE), given)
    assert used() >= 3
    there.put(None)
    process.join(PATIENCE)
    assert process.exitcode == 0
    process.close()
    for each in (there, back):
        each.close()
        each.join_thread()
        each._reader.close()


def is_installed(_: object = None) -> tuple[bool, dict[str, Any]]:
    return mp.installed(), dict(mp._settings)


def grandchild(_: object) -> tuple[bool, dict[str, Any]]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(is_installed)


@pytest.mark.parametrize("method", METHODS)
def test_a_child_has_what_its_parent_has(method: str) -> None:
    mp.install(threshold=100_000)
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        for found in (pool.submit(is_installed).result(PATIENCE), pool.submit(grandchild, 0).result(PATIENCE)):
            assert found == (True, {"threshold": 100_000, "budget": None, "kept": None})
    mp.uninstall()
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert not pool.submit(is_installed).result(PATIENCE)[0]


def test_install_is_undone() -> None:
    places = [
        (multiprocessing.connection, "Pipe"),
        (multiprocessing.queues, "connection"),
        (multiprocessing.queues, "_ForkingPickler"),
    ]
    before = [getattr(*place) for place in places]
    mp.install()
    mp.install()
    assert all(getattr(*place) is not was for place, was in zip(places, before))
    assert type(multiprocessing.Pipe()[0]) is mp.Connection
    mp.uninstall()
    mp.uninstall()
    assert [getattr(*place) for place in places] == before
    gc.collect()


def double(array: Any) -> Any:
    return array * 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["pool", "executor"])
def test_pools(method: str, kind: str) -> None:
    mp.install()
    context = multiprocessing.get_context(method)
    given = [big(seed) for seed in range(6)]
    if kind == "pool":
        with context.Pool(2) as pool:
            found = pool.map(double, given)
            pool.close()
            pool.join()
    else:
        with concurrent.futures.ProcessPoolExecutor(2, context) as executor:
            found = list(executor.map(double, given))
    assert all(same(one * 2, other) for one, other in zip(given, found))
    assert used() >= 6


def test_a_manager_works() -> None:
    mp.install()
    with multiprocessing.Manager() as manager:
        shared = manager.dict()
        shared["x"] = big()
        assert same(shared["x"], big())
        many = manager.Queue()
        many.put(big(1))
        assert same(many.get(), big(1))


def send_connection(to: Any) -> None:
    receiver, sender = mp.Pipe(duplex=False)
    to.send(receiver)
    sender.send(big(7))
    sender.close()
    to.recv()


@pytest.mark.parametrize("method", METHODS)
def test_connections_go_to_other_processes_and_messages_outlive_their_sender(method: str) -> None:
    ours, theirs = mp.Pipe()
    process = multiprocessing.get_context(method).Process(target=send_connection, args=(theirs,))
    process.start()
    theirs.close()
    receiver = ours.recv()
    assert type(receiver) is mp.Connection and receiver.readable and not receiver.writable
    ours.send(None)
    process.join(PATIENCE)
    assert process.exitcode == 0
    process.close()
    assert same(receiver.recv(), big(7))
    with pytest.raises(EOFError):
        receiver.recv()
    receiver.close()
    ours.close()
    multiprocessing.resource_sharer.stop(timeout=PATIENCE)


def produce(sender: Any, seed: int, lock: Any) -> None:
    for number in range(25):
        with lock:
            sender.send((seed, number, big(seed * 100 + number, 20_000 + 3000 * (number % 3))))


def test_messages_of_many_producers_stay_whole_and_in_order() -> None:
    context = multiprocessing.get_context("fork")
    receiver, sender = mp.Pipe(duplex=False)
    lock = context.Lock()
    processes = [context.Process(target=produce, args=(sender, seed, lock)) for seed in range(4)]
    for process in processes:
        process.start()
    sender.close()
    next_of = [0] * 4
    for _ in range(100):
        seed, number, array = receiver.recv()
        assert number == next_of[seed]
        next_of[seed] += 1
        assert same(array, big(seed * 100 + number, 20_000 + 3000 * (number % 3)))
    with pytest.raises(EOFError):
        receiver.recv()
    for process in processes:
        process.join(PATIENCE)
        process.close()
    receiver.close()


def produce_for_ever(sender: Any) -> None:
    number = 0
    while True:
        sender.send((number, np.full(50_000 + number % 7 * 1000, number)))
        number += 1


def consume_for_ever(receiver: Any, told: Any) -> None:
    kept = []
    while True:
        kept.append(receiver.recv())
        told.send_bytes(b"")
        del kept[:-3]


def test_a_producer_that_is_killed_leaves_whole_messages_and_nothing_else() -> None:
    context = multiprocessing.get_context("fork")
    for delay in (0.02, 0.05, 0.1):
        receiver, sender = mp.Pipe(duplex=False)
        process = context.Process(target=produce_for_ever, args=(sender,))
        process.start()
        sender.close()
        kept = [receiver.recv() for _ in range(5)]
        time.sleep(delay)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        process.close()
        try:
            while True:
                kept.append(receiver.recv())
        except (EOFError, OSError):
            pass
        assert [number for number, _ in kept] == list(range(len(kept)))
        assert all((array == number).all() for number, array in kept)
        del kept
        receiver.close()


def test_a_consumer_that_is_killed_gives_everything_back() -> None:
    context = multiprocessing.get_context("fork")
    for delay in (0.02, 0.05, 0.1):
        receiver, sender = mp.Pipe(duplex=False)
        heard, told = mp.Pipe(duplex=False)
        process = context.Process(target=consume_for_ever, args=(receiver, told))
        process.start()
        receiver.close()
        told.close()
        killer = threading.Timer(delay, os.kill, (process.pid, signal.SIGKILL))
        sender.send(big())
        heard.recv_bytes()
        killer.start()
        with pytest.raises(BrokenPipeError):
            while True:
                sender.send(big())
        killer.join()
        process.join()
        process.close()
        sender.close()
        heard.close()
        until = time.monotonic() + PATIENCE
        while mp.outstanding()["out"] and time.monotonic() < until:
            time.sleep(0.01)
        assert mp.outstanding()["out"] == 0


def hold(receiver: Any, go: Any) -> None:
    array = receiver.recv()
    go.recv()
    os._exit(0 if same(array, big(5)) else 1)


def test_a_child_that_is_forked_with_an_array_keeps_it() -> None:
    context = multiprocessing.get_context("fork")
    send, receive, close = through("pipe")
    send(big(5))
    array = receive()
    wait, go = mp.Pipe(duplex=False)

    def child() -> None:
        wait.recv()
        os._exit(0 if same(array, big(5)) else 1)

    process = context.Process(target=child)
    process.start()
    del array
    gc.collect()
    assert mp.outstanding()["out"] == 1
    for seed in range(4):
        send(big(seed))
        receive()
    go.send(0)
    process.join(PATIENCE)
    assert process.exitcode == 0
    process.close()
    for connection in (wait, go):
        connection.close()
    close()
    assert mp.outstanding()["out"] == 0


def test_a_process_sends_to_itself_and_forks_in_the_midst() -> None:
    context = multiprocessing.get_context("fork")
    many: Any = mp.Queue(ctx=context)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            many.put(big(1))
            assert same(many.get(timeout=PATIENCE), big(1))

    thread = threading.Thread(target=busy)
    thread.start()
    for _ in range(10):
        process = context.Process(target=os._exit, args=(0,))
        process.start()
        process.join(PATIENCE)
        assert process.exitcode == 0
        process.close()
    stop.set()
    thread.join()
    many.close()
    many.join_thread()
    many._reader.close()


def in_child(check: Callable[[], None]) -> None:
    process = multiprocessing.get_context("fork").Process(target=check)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
    process.close()


def test_a_child_has_none_of_its_parents_blocks() -> None:
    send, receive, close = through("pipe")
    send(big())
    receive()
    assert mp.outstanding()["blocks"] == 1

    def check() -> None:
        links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2 and
                 os.path.lexists(f"/proc/self/fd/{fd}")]
        assert not [link for link in links if "pageferry-block" in link]
        with open("/proc/self/maps") as maps:
            assert "pageferry-block" not in maps.read()
        assert mp.outstanding()["blocks"] == 0
        send(big(3))
        assert same(receive(), big(3))

    in_child(check)
    close()


# Waiting


def test_a_signal_ends_a_wait_and_its_handler_runs() -> None:
    receiver, sender = mp.Pipe(duplex=False)
    rang = []

    def ring(*_: object) -> None:
        rang.append(1)
        if len(rang) == 2:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        with pytest.raises(KeyboardInterrupt):
            receiver.recv()
        rang.clear()
        with pytest.raises(KeyboardInterrupt):
            while True:
                sender.send_bytes(b"x" * 60_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert receiver.recv_bytes() == b"x" * 60_000
    receiver.close()
    sender.close()


def test_ends_of_a_pipe_are_what_they_are() -> None:
    receiver, sender = mp.Pipe(duplex=False)
    with pytest.raises(OSError, match="read-only"):
        receiver.send(1)
    with pytest.raises(OSError, match="write-only"):
        sender.recv()
    assert not receiver.poll()
    sender.send(big())
    assert receiver.poll() and multiprocessing.connection.wait([receiver], 0) == [receiver]
    receiver.close()
    with pytest.raises(BrokenPipeError):
        sender.send(big())
    with pytest.raises(BrokenPipeError):
        sender.send(1)
    with pytest.raises(OSError, match="closed"):
        receiver.recv()
    sender.close()
    one, other = mp.Pipe()
    one.send(1)
    other.send(big())
    one.close()
    assert other.recv() == 1
    with pytest.raises((EOFError, ConnectionResetError)):
        other.recv()
    other.close()


def test_a_sender_that_waits_hears_that_its_receiver_is_gone() -> None:
    # A pipe breaks in the midst of a message, a socket is reset when nothing of one was taken.
    for length in (1000, 100_000, 200_000):
        receiver, sender = mp.Pipe(duplex=False)
        heard: list[BaseException] = []

        def fill(sender: mp.Connection = sender, heard: list[BaseException] = heard, length: int = length) -> None:
            try:
                while True:
                    sender.send_bytes(b"x" * length)
            except OSError as error:
                heard.append(error)

        thread = threading.Thread(target=fill)
        thread.start()
        time.sleep(0.2)
        receiver.close()
        thread.join(PATIENCE)
        assert [type(error) for error in heard] == [BrokenPipeError]
        sender.close()


def crowded() -> None:
    """Of a process whose user has as many descriptors in sockets as is allowed."""
    import errno

    if os.getuid() == 0:
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    one, other = socket.socketpair()
    for _ in range(60):
        socket.send_fds(one, [b"x"], [0])
    resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
    with pytest.raises(OSError) as too_many:
        for _ in range(60):
            socket.send_fds(one, [b"x"], [0])
    assert too_many.value.errno == errno.ETOOMANYREFS
    receiver, sender = mp.Pipe(duplex=False)
    before = used()
    for given in (big(), b"x" * 300_000, [big(1), {"y": big(2)}]):
        thread = threading.Thread(target=sender.send, args=(given,))
        thread.start()
        assert same(receiver.recv(), given)
        thread.join()
    assert used() > before and mp.outstanding()["out"] == 0
    del one, other


def test_a_descriptor_that_cannot_be_sent_is_not_missed() -> None:
    in_child(crowded)


def test_queues_are_those_of_multiprocessing() -> None:
    many: Any = mp.Queue(2)
    assert isinstance(many, multiprocessing.queues.Queue) and isinstance(mp.JoinableQueue(), mp.Queue)
    many.put(1)
    many.put(big())
    with pytest.raises(queue.Full):
        many.put(3, timeout=0.01)
    assert many.get(timeout=PATIENCE) == 1 and same(many.get(timeout=PATIENCE), big())
    with pytest.raises(queue.Empty):
        many.get_nowait()
    many.close()
    many.join_thread()
    many._reader.close()
    gc.collect()


def test_settings_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"threshold": -1}, {"budget": "1"}, {"kept": 1.5}):
        with pytest.raises(ValueError, match="expected bytes"):
            mp.configure(**wrong)  # type: ignore[arg-type]
    mp.configure(threshold=1 << 30)
    send, receive, close = through("pipe")
    before = used()
    for given in (b"x" * 100_000, bytearray(100_000), "x" * 100_000):
        send(given)
        assert receive() == given
    # A buffer that stays in the pickle comes to the writer as it is.
    monkeypatch.setattr(mp, "_MIN_BUFFER", 1 << 30)
    for array in (big(1, 30_000), np.asfortranarray(big(2, 30_000).reshape(100, -1)), big(3, 30_000)[::2]):
        send(array)
        assert same(receive(), array)
    assert used() == before
    close()


def test_pandas_goes_by_memory() -> None:
    pandas = pytest.importorskip("pandas")
    send, receive, close = through("pipe")
    drawn = np.random.default_rng(1).random(100_000)
    given = pandas.DataFrame({"x": np.arange(100_000), "y": drawn, "z": ["w"] * 100_000})
    send(given)
    found = receive()
    pandas.testing.assert_frame_equal(given, found)
    found.loc[3, "x"] = 7
    del found
    close()


def test_a_pickle_is_loaded_without_this_package() -> None:
    import subprocess
    import sys

    message = bytes(mp._Pickler.dumps([big(), "x"]))
    code = (
        "import pickle, sys; x = pickle.load(sys.stdin.buffer); print(int(x[0].sum())); "
        "assert 'pageferry' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], input=message, stdout=subprocess.PIPE, check=True)
    assert int(done.stdout) == int(big().sum())
    assert io.BytesIO(message).read(1) == b"\x80"


AT_THE_END = """
import multiprocessing, multiprocessing.util, sys, threading, time, types
import numpy as np
import pageferry.mp

kept = []

class Late:
    "Wakes a thread that waits when the interpreter takes its modules apart."
    sleep = staticmethod(time.sleep)

    def __init__(self, sender):
        self.sender = sender

    def __del__(self):
        self.sender.send_bytes(b"x")
        self.sleep(0.05)

def waits(connection):
    connection.recv()

def floods(sender):
    while True:
        sender.send_bytes(b"x" * 60000)

def turns(receiver, sender):
    while True:
        sender.send_bytes(b"x" * 200000)
        receiver.recv_bytes()

def child(queue):
    kept.extend([*pageferry.mp.Pipe(False), *pageferry.mp.Pipe(False)])
    threading.Thread(target=turns, args=pageferry.mp.Pipe(False), daemon=True).start()
    threading.Thread(target=waits, args=(kept[0],), daemon=True).start()
    # What a module holds alone is taken apart with it.
    sys.modules["late"] = types.ModuleType("late")
    sys.modules["late"].late = Late(kept[1])
    threading.Thread(target=floods, args=(kept[3],), daemon=True).start()
    queue.put(np.arange(1 << 20))
    # The feeder of this one has nobody who receives.
    many = pageferry.mp.Queue()
    kept.append(many)
    for _ in range(100):
        many.put(b"y" * 50000)
    many.cancel_join_thread()
    time.sleep(0.1)

if __name__ == "__main__":
    pageferry.mp.install()
    for method in ("spawn", "fork", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        assert queue.get(timeout=60)[-1] == (1 << 20) - 1
        process.join(60)
        assert process.exitcode == 0, (method, process.exitcode)
    child(queue)
    # What is put last is sent, although nobody takes it.
    queue.put(np.arange(1 << 20))
"""


def test_the_end_of_an_interpreter_waits_for_queues_and_for_nothing_else(tmp_path: Any) -> None:
    import subprocess
    import sys

    script = tmp_path / "ends.py"
    script.write_text(AT_THE_END)
    for _ in range(2):
        done = subprocess.run([sys.executable, str(script)], timeout=4 * PATIENCE, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (0, "")
