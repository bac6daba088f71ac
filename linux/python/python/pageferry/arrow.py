"""Tables of pyarrow's: the IPC stream is written straight into the channel's memory, and read where it lies.

    >>> import pageferry as pf
    >>> import pyarrow as pa                                    # doctest: +SKIP
    >>> a, b = pf.pair(slots=2, slot_bytes=2 << 20)             # doctest: +SKIP
    >>> pf.arrow.send(a, pa.table({"x": range(100_000)}))       # doctest: +SKIP
    'loan'
    >>> pf.arrow.recv(b).num_rows                               # doctest: +SKIP
    100000
"""

from __future__ import annotations

from importlib import import_module

from ._ends import Receiver, Sender
from ._errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _pyarrow() -> Any:
    return import_module("pyarrow")


def send(sender: Sender, table: Any, *, timeout: float | None = None) -> str:
    """Sends a table or record batch. Says how its bytes went."""
    pa = _pyarrow()
    batches = [table] if isinstance(table, pa.RecordBatch) else table.to_batches()

    def write(sink: Any) -> None:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)

    # Its length is known when it was written; this counts, and writes nothing.
    measure = pa.MockOutputStream()
    write(measure)
    view = sender.buffer(measure.size(), timeout=timeout)
    write(pa.FixedSizeBufferWriter(pa.py_buffer(view)))
    return sender.send(view, timeout=timeout)


def recv(receiver: Receiver, *, timeout: float | None = None) -> Any:
    """The table of the next message, on the memory that it came in."""
    pa = _pyarrow()
    came = receiver.recv("ro", timeout=timeout)
    if not isinstance(came, memoryview):
        raise UsageError(f"the message is a {type(came).__name__}, not a table that pageferry.arrow.send has sent")
    return pa.ipc.open_stream(pa.py_buffer(came)).read_all()
