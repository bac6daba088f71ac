"""Big buffers between processes on Linux, without a copy where that is cheaper.

A pair has a sending and a receiving end, for two processes or two threads. What is sent is a snapshot: no later write
of either side reaches the other. An array that was received lies where the sender filled it, and goes home when the
last reference to it is gone.

    >>> import pageferry as pf
    >>> a, b = pf.pair(slots=4, slot_bytes=2 << 20)
    >>> x = a.empty((512, 512), "f4")       # memory of the channel; a.array(src) copies something in
    >>> x[...] = 7
    >>> a.send(x)                           # the receiver reads it where it is
    'loan'
    >>> y = b.recv()
    >>> y[0, 0] = 1                         # a page of the receiver's own
    >>> float(x[0, 0]), float(y.sum())
    (7.0, 1835002.0)

``pageferry.mp`` is the drop-in for ``multiprocessing``; ``pageferry.arrow`` and ``pageferry.torch`` are for those.
numpy is used where it is to be had, and imported when it is first needed.
"""

from __future__ import annotations

from ._ends import Mode, Message, Outstanding, Receiver, Sender, How, outstanding, pair
from ._errors import BudgetError, Error, Forked, HostError, PeerError, PeerGone, PoolFull, TimedOut, UsageError
from ._native import Loan, Slot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import arrow, mp, torch

__all__ = [
    "BudgetError",
    "Error",
    "Forked",
    "HostError",
    "How",
    "Loan",
    "Message",
    "Mode",
    "Outstanding",
    "PeerError",
    "PeerGone",
    "PoolFull",
    "Receiver",
    "Sender",
    "Slot",
    "TimedOut",
    "UsageError",
    "arrow",
    "mp",
    "outstanding",
    "pair",
    "torch",
]


def __getattr__(name: str) -> object:
    # What is for one use alone is imported when it is used.
    if name in ("arrow", "mp", "torch"):
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
