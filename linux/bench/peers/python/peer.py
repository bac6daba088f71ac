"""One way to send arrays from one Python process to another, for `pageferry host bench --python`.

The runner starts this program once for each method: `peer.py METHOD PREFIX [CPU CPU]`. It is the sender; for each
size it forks the receiver. Orders come as lines of JSON on standard input, and each is answered by one line on
standard output (`linux/bench/src/program/words.rs` has both). The sender takes the times, from its first store or call
of a message to its knowing that the receiver is done with it; the runner has the methods take turns.

What all methods have in common, so that only the way differs:
- A message is an array of 64-bit words that a *stamp* makes: word `i` is `stamp * A + i * B`. So sums are known.
- `read` sends arrays again that were filled before, by turns; the receiver sums all words. `refilled` fills each
  message before it goes. `untouched` does neither. Sums are compared after each batch that reads, and in rounds that
  are not timed (`check`) every word is.
- Both sides sleep. The receiver says that it is done by a byte in a pipe, and methods that have no call that waits for
  a message are woken by another. A process that dies closes its pipes, so the other does not wait for it.

Whatever gets a name in a file system begins with PREFIX or lies in TMPDIR, and the runner takes away what is left.
A receiver dies with its sender, and a sender with the runner.
"""

import ctypes
import importlib
import json
import multiprocessing as mp
import os
import pickle
import signal
import socket
import struct
import sys
import time

A = 0x9E37_79B9_7F4A_7C15
B = 0xD6E8_FEB8_6659_FD93
MASK = (1 << 64) - 1
# Arrays that messages rotate through.
SLOTS = 2
# Words of a pattern that stays in a core's caches while an array is filled from it. Of fewer, numpy (1.24) takes three
# times as long.
BLOCK = 8192
PR_SET_PDEATHSIG = 1


class Broken(Exception):
    """The other side is gone, or what arrived is not what was sent."""


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Words:
    """Fills, sums and compares arrays of one size, at the speed of memory."""

    def __init__(self, nbytes):
        self.count = nbytes // 8
        block = BLOCK if self.count % BLOCK == 0 else self.count
        self.block = np.arange(block, dtype=np.uint64) * np.uint64(B)
        self.rows = np.arange(self.count // block, dtype=np.uint64) * np.uint64(block * B & MASK)

    def new(self):
        return np.zeros(self.count, np.uint64)

    def fill(self, array, stamp):
        first = self.rows + np.uint64(stamp * A & MASK)
        np.add.outer(first, self.block, out=array.reshape(len(self.rows), -1))

    def sum_of(self, stamp):
        return (self.count * stamp * A + self.count * (self.count - 1) // 2 * B) & MASK

    def are_of(self, array, stamp):
        wanted = self.new()
        self.fill(wanted, stamp)
        return len(array) == self.count and bool(np.array_equal(array, wanted))


class Method:
    """Sends arrays of this process. Made by the sender before it forks the receiver: both have what it holds."""

    # Modules without which there is no such method; the first is the one to tell the version of.
    needs = ("numpy",)

    @classmethod
    def load(cls):
        """Imports what the method needs; ImportError says what is not there."""
        for name in cls.needs:
            globals()["np" if name == "numpy" else name] = importlib.import_module(name)

    def __init__(self, words, wake):
        self.words = words
        self.wake = wake
        self.next_slot = 0
        self.stamps = {}
        self.arrays = self.make_arrays()

    def make_arrays(self):
        return [self.words.new() for _ in range(SLOTS)]

    def prime(self, stamp):
        """Everything that is sent again was filled from this stamp."""
        for slot, array in enumerate(self.arrays):
            if self.stamps.get(slot) != stamp:
                self.words.fill(array, stamp)
                self.stamps[slot] = stamp

    def next(self, refill):
        """The array that goes next, and what its stamp is kept under."""
        self.next_slot = (self.next_slot + 1) % SLOTS
        return self.next_slot, self.arrays[self.next_slot]

    def be_sender(self):
        """After the fork, in the sender."""

    def be_receiver(self):
        """After the fork, in the receiver."""

    def send(self, slot, array):
        raise NotImplementedError

    def receive(self):
        """The next array; it waits for it. What the array lies in is given back with it."""
        raise NotImplementedError

    def leave(self):
        """At the end, in the receiver."""

    def close(self):
        """At the end, in the sender, when the receiver has ended."""


class Queue(Method):
    """`multiprocessing.Queue`: pickled by a thread, through a pipe."""

    def __init__(self, words, wake):
        super().__init__(words, wake)
        self.queue = mp.Queue()

    def send(self, slot, array):
        self.queue.put(array)

    def receive(self):
        return self.queue.get()

    def close(self):
        self.queue.close()
        self.queue.cancel_join_thread()


class Pickle5(Method):
    """Pickle's protocol 5 over a Unix socket; buffers go beside it, straight from and into arrays."""

    def __init__(self, words, wake):
        super().__init__(words, wake)
        self.sender, self.receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def be_sender(self):
        self.receiver.close()

    def be_receiver(self):
        self.sender.close()

    def send(self, slot, array):
        buffers = []
        text = pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
        views = [buffer.raw() for buffer in buffers]
        sizes = [len(text), len(views), *(view.nbytes for view in views)]
        self.sender.sendall(struct.pack(f"<{len(sizes)}Q", *sizes) + text)
        for view in views:
            self.sender.sendall(view)

    def receive(self):
        text_bytes, count = struct.unpack("<2Q", self.exactly(bytearray(16)))
        sizes = struct.unpack(f"<{count}Q", self.exactly(bytearray(8 * count)))
        text = self.exactly(bytearray(text_bytes))
        buffers = [self.exactly(np.empty(size, np.uint8)) for size in sizes]
        return pickle.loads(text, buffers=buffers)

    def exactly(self, buffer):
        rest = memoryview(buffer)
        while len(rest):
            got = self.receiver.recv_into(rest, 0, socket.MSG_WAITALL)
            if got == 0:
                raise Broken("the sender has closed the socket")
            rest = rest[got:]
        return buffer

    def close(self):
        self.sender.close()


class SharedMemory(Method):
    """`multiprocessing.shared_memory`, kept: copied into it, and out of it."""

    def __init__(self, words, wake):
        from multiprocessing.shared_memory import SharedMemory as Block

        super().__init__(words, wake)
        self.block = Block(name=PREFIX + "shm", create=True, size=SLOTS * 8 * words.count)
        # Both processes have it mapped from here on; its name is nobody's business.
        self.block.unlink()
        self.shared = np.ndarray((SLOTS, words.count), np.uint64, self.block.buf)

    def be_receiver(self):
        self.own = self.words.new()

    def send(self, slot, array):
        np.copyto(self.shared[slot], array)
        self.wake.tell(slot)

    def receive(self):
        np.copyto(self.own, self.shared[self.wake.wait()])
        return self.own

    def close(self):
        del self.shared
        self.block.close()


class Arrow(Method):
    """Arrow's IPC stream over a Unix socket."""

    needs = ("pyarrow", "numpy")

    @classmethod
    def load(cls):
        super().load()
        importlib.import_module("pyarrow.ipc")

    def __init__(self, words, wake):
        super().__init__(words, wake)
        self.schema = pyarrow.schema([("words", pyarrow.uint64())])
        self.sender, self.receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.reader = None

    def be_sender(self):
        self.receiver.close()
        self.file = self.sender.makefile("wb")
        self.writer = pyarrow.ipc.new_stream(self.file, self.schema)

    def be_receiver(self):
        self.sender.close()

    def send(self, slot, array):
        column = pyarrow.Array.from_buffers(pyarrow.uint64(), len(array), [None, pyarrow.py_buffer(array)])
        self.writer.write_batch(pyarrow.RecordBatch.from_arrays([column], schema=self.schema))
        self.file.flush()

    def receive(self):
        if self.reader is None:
            self.reader = pyarrow.ipc.open_stream(self.receiver.makefile("rb"))
        return self.reader.read_next_batch().column(0).to_numpy(zero_copy_only=True)

    def close(self):
        self.sender.close()


class TorchKept(Method):
    """A tensor in shared memory that is kept, and sent again and again through `torch.multiprocessing`."""

    needs = ("torch", "numpy")

    def __init__(self, words, wake):
        import torch.multiprocessing

        super().__init__(words, wake)
        self.queue = torch.multiprocessing.get_context("fork").Queue()

    def make_arrays(self):
        zeros = (torch.zeros(self.words.count, dtype=torch.int64) for _ in range(SLOTS))
        self.tensors = [tensor.share_memory_() for tensor in zeros]
        return [tensor.numpy().view(np.uint64) for tensor in self.tensors]

    def send(self, slot, array):
        self.queue.put(self.tensors[slot])

    def receive(self):
        return self.queue.get().numpy().view(np.uint64)

    def close(self):
        self.queue.close()
        self.queue.cancel_join_thread()


class TorchNew(TorchKept):
    """A new tensor for each message through `torch.multiprocessing`, which copies it into shared memory."""

    def make_arrays(self):
        return Method.make_arrays(self)

    def send(self, slot, array):
        self.queue.put(torch.from_numpy(array.view(np.int64)))


class Iceoryx2(Method):
    """iceoryx2: messages are made in shared memory, and read there. Both sides can write to it."""

    needs = ("iceoryx2", "numpy")

    def make_arrays(self):
        return []

    def prime(self, stamp):
        """Memory is filled when it first comes: which comes is the library's choice."""
        self.primed = stamp

    def service(self):
        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
        config = iceoryx2.config.default()
        config.global_cfg.prefix = iceoryx2.FileName.new(PREFIX)
        config.global_cfg.root_path = iceoryx2.Path.new(os.environ["TMPDIR"] + "/iceoryx2")
        node = iceoryx2.NodeBuilder.new().config(config)
        node = node.signal_handling_mode(iceoryx2.SignalHandlingMode.Disabled)
        self.node = node.create(iceoryx2.ServiceType.Ipc)
        service = self.node.service_builder(iceoryx2.ServiceName.new("words"))
        service = service.publish_subscribe(iceoryx2.Slice[ctypes.c_uint64])
        service = service.payload_alignment(iceoryx2.Alignment.new(64))
        return service.max_publishers(1).max_subscribers(1).subscriber_max_buffer_size(SLOTS).open_or_create()

    def be_sender(self):
        self.factory = self.service()
        publisher = self.factory.publisher_builder().initial_max_slice_len(self.words.count)
        self.publisher = publisher.max_loaned_samples(SLOTS).create()
        self.sample = None

    def be_receiver(self):
        self.factory = self.service()
        self.subscriber = self.factory.subscriber_builder().create()
        self.received = None

    def view(self, sample):
        words = (ctypes.c_uint64 * self.words.count).from_address(sample.payload_ptr)
        return np.frombuffer(words, np.uint64)

    def next(self, refill):
        self.sample = self.publisher.loan_slice_uninit(self.words.count)
        array, key = self.view(self.sample), self.sample.payload_ptr
        if not refill and self.stamps.get(key) != self.primed:
            self.words.fill(array, self.primed)
            self.stamps[key] = self.primed
        return key, array

    def send(self, slot, array):
        self.sample.assume_init().send()
        self.wake.tell(0)

    def receive(self):
        self.wake.wait()
        self.received = self.subscriber.receive()
        return self.view(self.received)

    def leave(self):
        del self.received, self.subscriber, self.factory, self.node

    def close(self):
        del self.sample, self.publisher, self.factory, self.node


class Pageferry(Method):
    """pageferry: a kept array of a slot is sent again; what is refilled is a new one, filled in place."""

    needs = ("pageferry", "numpy")

    def make_arrays(self):
        # No side looks before it sleeps, as with all others.
        self.a, self.b = pageferry.pair(slots=SLOTS, slot_bytes=8 * self.words.count, budget=8 << 30, spin_us=0)
        return []

    def prime(self, stamp):
        if self.stamps.get(0) != stamp:
            self.arrays.clear()
            self.arrays.extend(self.a.empty((self.words.count,), np.uint64) for _ in range(SLOTS))
            super().prime(stamp)

    def next(self, refill):
        if not refill:
            return super().next(refill)
        self.arrays.clear()
        self.stamps.clear()
        return None, self.a.empty((self.words.count,), np.uint64)

    def send(self, slot, array):
        self.a.send(array)

    def receive(self):
        return self.b.recv()


class PageferryArray(Pageferry):
    """pageferry: the sender's own array is copied into a slot."""

    def make_arrays(self):
        super().make_arrays()
        return Method.make_arrays(self)

    prime = Method.prime
    next = Method.next

    def send(self, slot, array):
        self.a.send(self.a.array(array))


class PageferryQueue(Queue):
    """`multiprocessing.Queue`, with pageferry behind it."""

    needs = ("pageferry", "numpy")

    def __init__(self, words, wake):
        pageferry.mp.install()
        super().__init__(words, wake)


METHODS = {
    "mp-queue": Queue,
    "pickle5": Pickle5,
    "shared-memory": SharedMemory,
    "arrow": Arrow,
    "torch-kept": TorchKept,
    "torch-new": TorchNew,
    "iceoryx-python": Iceoryx2,
    "ferry": Pageferry,
    "ferry-array": PageferryArray,
    "ferry-queue": PageferryQueue,
}


class Bell:
    """A pipe that brings one byte, and the end when nobody can ring any more."""

    def __init__(self):
        self.reader, self.writer = os.pipe()

    def tell(self, byte):
        os.write(self.writer, bytes((byte,)))

    def wait(self):
        byte = os.read(self.reader, 1)
        if not byte:
            raise Broken("the other process has ended")
        return byte[0]


class Receiver:
    """The receiving process, as it sees itself."""

    def __init__(self, method, words, orders, done):
        self.method, self.words, self.orders, self.done = method, words, orders, done

    def run(self):
        try:
            self.method.be_receiver()
            self.orders.send(None)
            while (order := self.orders.recv()) is not None:
                self.orders.send(None)
                self.orders.send(self.batch(*order))
            self.method.leave()
        except EOFError:
            pass
        except Exception as error:
            self.orders.send(f"{type(error).__name__}: {error}")

    def batch(self, reads, stamp, step, rounds, check):
        total, right = 0, True
        for _ in range(rounds):
            array = self.method.receive()
            if reads:
                total += int(array.sum())
            if check:
                right = right and self.words.are_of(array, stamp)
                stamp += step
            # Whatever it lies in is given back before the sender hears of it.
            del array
            self.done.tell(0)
        return total & MASK, right


class Sender:
    """Both processes, for messages of one size, as the sending one sees them."""

    def __init__(self, kind, nbytes):
        self.words = Words(nbytes)
        self.stamp = 1
        self.primed = 1
        self.wake, self.done = Bell(), Bell()
        self.orders, orders = mp.Pipe()
        self.method = kind(self.words, self.wake)
        self.process = mp.get_context("fork").Process(target=self.receiver, args=(orders,), daemon=True)
        self.process.start()
        orders.close()
        os.close(self.wake.reader)
        os.close(self.done.writer)
        self.method.be_sender()
        self.answer()

    def receiver(self, orders):
        die_with_parent()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        if CPUS:
            os.sched_setaffinity(0, {CPUS[1]})
        self.orders.close()
        os.close(self.wake.writer)
        os.close(self.done.reader)
        Receiver(self.method, self.words, orders, self.done).run()

    def answer(self):
        try:
            answer = self.orders.recv()
        except EOFError:
            raise Broken(f"the receiver has ended: {self.ended()}") from None
        if isinstance(answer, str):
            raise Broken(f"the receiver: {answer}")
        return answer

    def ended(self):
        self.process.join(5)
        code = self.process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit {code}"

    def batch(self, pattern, warm, rounds, check):
        refills, reads = pattern == "refilled", pattern != "untouched"
        first = self.stamp + 1 if refills else self.primed
        self.orders.send((reads, first, int(refills), warm + rounds, check))
        self.answer()
        try:
            if not refills:
                # The receiver is there: some methods have memory when both sides are.
                self.method.prime(self.primed)
            for _ in range(warm):
                self.round(refills)
            began = time.perf_counter_ns()
            for _ in range(rounds):
                self.round(refills)
            nanos = (time.perf_counter_ns() - began) / rounds
        except (Broken, OSError) as error:
            # The receiver, if it has said anything, knows better.
            if self.orders.poll(1):
                self.answer()
            raise error
        total, right = self.answer()
        stamps = range(first, self.stamp + 1) if refills else [first] * (warm + rounds)
        if not right or (reads and total != sum(map(self.words.sum_of, stamps)) & MASK):
            raise Broken("what arrived is not what was sent")
        return nanos

    def round(self, refills):
        slot, array = self.method.next(refills)
        if refills:
            self.stamp += 1
            self.words.fill(array, self.stamp)
            self.method.stamps[slot] = self.stamp
        self.method.send(slot, array)
        del array
        self.done.wait()

    def close(self):
        try:
            self.orders.send(None)
            self.process.join(10)
        except OSError:
            pass
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.method.close()
        for fd in (self.wake.writer, self.done.reader):
            os.close(fd)
        self.orders.close()


def version(name):
    """Of a module, or of the distribution of that name where the module has none."""
    metadata = importlib.import_module("importlib.metadata")
    try:
        return getattr(sys.modules[name], "__version__", None) or metadata.version(name)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def import_time():
    began = time.perf_counter_ns()
    import pageferry

    del pageferry
    return time.perf_counter_ns() - began


def serve(kind, orders, answer):
    """Carries out orders until there are none."""
    sender = None
    for line in orders:
        order = json.loads(line)
        try:
            if order == "close":
                if sender:
                    sender.close()
                sender = None
                answer("done")
            elif "open" in order:
                sender = Sender(kind, order["open"]["bytes"])
                answer("done")
            else:
                answer({"nanos": sender.batch(**order["send"])})
        except Exception as error:
            text = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
            answer({"failed": text})
            return


def main():
    global PREFIX, CPUS
    word, PREFIX, CPUS = sys.argv[1], sys.argv[2], [int(cpu) for cpu in sys.argv[3:]]
    die_with_parent()
    # What else prints does not get between the answers.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(what):
        print(json.dumps(what), file=out, flush=True)

    if CPUS:
        os.sched_setaffinity(0, {CPUS[0]})
    if word == "import":
        try:
            answer({"nanos": import_time()})
        except ImportError as error:
            answer({"missing": str(error)})
        return
    kind = METHODS.get(word)
    if kind is None:
        answer({"failed": f"there is no method {word}"})
        return
    try:
        kind.load()
    except ImportError as error:
        answer({"missing": str(error)})
        return
    answer({"ready": f"{kind.needs[0]} {version(kind.needs[0])}"})
    serve(kind, sys.stdin, answer)


if __name__ == "__main__":
    main()
