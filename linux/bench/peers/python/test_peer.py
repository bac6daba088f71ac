"""Tests of `peer.py`, by the interpreter that the peers were installed for: `python -m unittest test_peer`.

Every method that can be had brings every word, and a way that changes one, loses a message or ends is found out.
"""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import numpy

# Whatever `multiprocessing` removes at the end, it removes before this is.
FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, FOLDER, True)
tempfile.tempdir = os.environ["TMPDIR"] = FOLDER

import peer  # noqa: E402

BYTES = 1 << 20
BATCHES = [
    ("read", True),
    ("refilled", True),
    ("untouched", False),
    ("read", False),
    ("refilled", False),
    ("read", True),
]


def missing(kind):
    """What the method needs and is not there."""
    try:
        return kind.load()
    except ImportError as error:
        return error


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


class OneByte(peer.Pickle5):
    """One byte arrives changed."""

    def receive(self):
        array = super().receive()
        array[-1] ^= numpy.uint64(1 << 56)
        return array


class Older(peer.SharedMemory):
    """The message before arrives again: its sum is right in rounds that send the same again."""

    def receive(self):
        kept = self.own.copy()
        super().receive()
        return kept


class Short(peer.Pickle5):
    """A word is missing."""

    def receive(self):
        return super().receive()[:-1]


class Raises(peer.Pickle5):
    def receive(self):
        raise ValueError("no more of this")


class Dies(peer.Pickle5):
    def receive(self):
        os.kill(os.getpid(), 9)


class TestWords(unittest.TestCase):
    def setUp(self):
        peer.Method.load()

    def test_words_are_those_of_the_bench(self):
        # As `work.rs` has them.
        for count, stamp, wanted in [(8192, 7, 0x6B637CF6B2B93000), (131072, (1 << 63) + 1, 0xC16E9360FA970000)]:
            words = peer.Words(8 * count)
            array = words.new()
            words.fill(array, stamp)
            self.assertEqual(int(array.sum()), wanted)
            self.assertEqual(words.sum_of(stamp), wanted)
            self.assertEqual(int(array[3]), (stamp * peer.A + 3 * peer.B) & peer.MASK)
            self.assertTrue(words.are_of(array, stamp))
            self.assertFalse(words.are_of(array, stamp ^ 1))
            self.assertFalse(words.are_of(array[:-1], stamp))
            array[-1] ^= numpy.uint64(1)
            self.assertFalse(words.are_of(array, stamp))

    def test_sizes_that_are_no_whole_blocks_are_filled_too(self):
        words = peer.Words(3000)
        array = words.new()
        words.fill(array, 5)
        self.assertEqual(int(array.sum()), words.sum_of(5))


class TestMethods(unittest.TestCase):
    def setUp(self):
        peer.PREFIX, peer.CPUS = f"pageferry-bench-{os.getpid()}-", []
        self.addCleanup(self.no_names)

    def no_names(self):
        mine = [name for name in os.listdir("/dev/shm") if name.startswith(peer.PREFIX)]
        for name in mine:
            os.unlink(f"/dev/shm/{name}")
        # iceoryx2 keeps one file of a node beyond its end, which the runner takes away.
        self.assertEqual([name for name in mine if "global_mgmt" not in name], [])

    def test_every_method_brings_every_word(self):
        for name, kind in peer.METHODS.items():
            with self.subTest(name):
                if problem := missing(kind):
                    print(f"{name}: not tested: {problem}")
                    continue
                for nbytes in (64 << 10, BYTES):
                    sender = peer.Sender(kind, nbytes)
                    for pattern, check in BATCHES:
                        if pattern == "refilled" or kind is not peer.PageferryArray:
                            self.assertGreater(sender.batch(pattern, 1, 3, check), 0)
                    sender.close()
                    self.assertFalse(sender.process.is_alive())

    def test_descriptors_are_given_back(self):
        for name, kind in peer.METHODS.items():
            if not missing(kind):
                with self.subTest(name):
                    # What is made once for the process is made by the first.
                    self.one_batch(kind)
                    before = open_descriptors()
                    self.one_batch(kind)
                    # A queue's thread closes its end when it gets to it.
                    until = time.monotonic() + 10
                    while open_descriptors() > before and time.monotonic() < until:
                        time.sleep(0.01)
                    self.assertLessEqual(open_descriptors(), before)

    def one_batch(self, kind):
        sender = peer.Sender(kind, BYTES)
        sender.batch("refilled", 0, 2, False)
        sender.close()

    def fails(self, kind, pattern, check, problem):
        kind.load()
        sender = peer.Sender(kind, BYTES)
        with self.assertRaisesRegex((peer.Broken, OSError), problem):
            sender.batch(pattern, 0, 3, check)
        sender.close()

    def test_what_arrives_changed_is_found(self):
        changed = "what arrived is not what was sent"
        for kind in (OneByte, Short):
            for pattern, check in [("read", False), ("refilled", False), ("read", True), ("refilled", True)]:
                with self.subTest(kind=kind, pattern=pattern, check=check):
                    self.fails(kind, pattern, check, changed)
        self.fails(Older, "refilled", False, changed)
        self.fails(Older, "refilled", True, changed)

    def test_a_receiver_that_ends_is_told_of(self):
        self.fails(Raises, "read", False, "the receiver: ValueError: no more of this")
        self.fails(Dies, "read", False, "the receiver has ended: signal 9|the other process has ended|Broken pipe")


class TestProgram(unittest.TestCase):
    """Over lines, as the runner has it."""

    def say(self, method, *orders):
        with tempfile.TemporaryDirectory() as folder:
            text = "".join(json.dumps(order) + "\n" for order in orders)
            done = subprocess.run(
                [sys.executable, peer.__file__, method, f"pageferry-bench-{os.getpid()}-"],
                input=text,
                capture_output=True,
                text=True,
                timeout=120,
                env={**os.environ, "TMPDIR": folder},
                check=True,
            )
            return [json.loads(line) for line in done.stdout.splitlines()]

    def send(self, pattern, check=False):
        return {"send": {"pattern": pattern, "warm": 1, "rounds": 2, "check": check}}

    def test_orders_are_answered(self):
        orders = [{"open": {"bytes": BYTES}}, self.send("read", True), self.send("untouched"), "close"] * 2
        ready, *answers = self.say("pickle5", *orders)
        self.assertRegex(ready["ready"], "^numpy [0-9]")
        self.assertEqual([answers[index] for index in (0, 3, 4, 7)], ["done"] * 4)
        self.assertTrue(all(answers[index]["nanos"] > 0 for index in (1, 2, 5, 6)))

    def test_what_is_no_order_is_told_of_and_ends_it(self):
        for order in ({"open": {"size": 5}}, {"close": 1}, 12, self.send("read")):
            _, *answers = self.say("pickle5", order, "close")
            self.assertEqual(len(answers), 1, answers)
            self.assertIn("failed", answers[0])
        self.assertIn("failed", self.say("carrier-pigeon")[0])


if __name__ == "__main__":
    unittest.main()
