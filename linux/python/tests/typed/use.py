"""What a typed program does with the package: read by type checkers, and run by nobody."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import pageferry as pf

a, b = pf.pair(slots=4, slot_bytes=2 << 20, level="sealed", spin_us=None, timeout=5)
assert_type(a, pf.Sender)
assert_type(b, pf.Receiver)
x = a.empty((2, 3), "f4", order="F", timeout=1.0)
assert_type(x, npt.NDArray[Any])
y: npt.NDArray[np.int32] = a.array([1, 2, 3], np.int32)
assert_type(a.send(x), str)
assert_type(a.send({"x": x, "y": [y]}, "donate", timeout=0.5), str)
assert_type(a.buffer(100), memoryview)
with b.recv_message("ro", timeout=1) as message:
    assert_type(message, pf.Message)
    assert_type(message.array, npt.NDArray[Any])
    message.release()
for line in pf.outstanding():
    assert_type(line.nbytes, int)
    assert_type(line.where, str | None)
try:
    b.recv(timeout=0)
except (pf.TimedOut, pf.PeerGone) as error:
    assert_type(error, pf.TimedOut | pf.PeerGone)
for value in b:
    print(value)
how: pf.How = "share"
mode: pf.Mode = "cow"
a.send(x, how)
b.recv(mode)
with pf.pair()[0] as c:
    c.close()

a.send(x, "lend")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
b.recv("w")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pf.pair(slot=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

pf.mp.install(threshold=1 << 20, budget=None)
receiver, sender = pf.mp.Pipe(duplex=False)
assert_type(receiver, pf.mp.Connection)
sender.send({"x": x})
many: pf.mp.Queue[int] = pf.mp.Queue(3)
assert_type(many.get(), int)
pf.mp.get_context("spawn").Process(target=print)
assert_type(pf.mp.outstanding(), dict[str, int])
