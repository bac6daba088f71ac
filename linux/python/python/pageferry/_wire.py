"""What a message is made of.

An object goes as a number of *parts*, each one message of the channel with bytes and nothing else, and then the *main*
message, which says what the parts are. The tag of each says which kind it is, which object it belongs to, and how many
parts there are; a message without such a tag is of another program, and is bytes.

The main message of an array is its type and shape; that of any other object is a pickle of protocol 5, whose buffers
are the parts. Most arrays of a channel are of a few types and shapes: those are told once, each with a number, and an
array of one that was told is a single message. Pickles run code when they are loaded, so both ends of a pair must be of
programs that trust each other.
"""

from __future__ import annotations

import pickle
import struct
import sys

from ._native import Loan, Slot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NamedTuple

    import numpy as np
    import numpy.typing as npt
else:
    from collections import namedtuple

MAGIC = 0x70667079
PART, ARRAY, OBJECT, HEAD, KNOWN = 1, 2, 3, 4, 5
MAX_PARTS = 0xFFFF
# Types and shapes that a channel keeps in mind.
MAX_KNOWN = 64
# Shorter buffers stay in the pickle.
MIN_BUFFER = 1024
# Buffers of a part are apart so far: a line of the cache.
ALIGN = 64

_WHERE = struct.Struct("=IQQ")
_COUNT = struct.Struct("=I")


if TYPE_CHECKING:

    class Tag(NamedTuple):
        kind: int
        serial: int
        parts: int

else:
    Tag = namedtuple("Tag", "kind serial parts")


def tag(kind: int, serial: int, parts: int) -> int:
    return MAGIC << 32 | kind << 28 | (serial & 0xFFF) << 16 | parts


def read_tag(number: int) -> Tag | None:
    """What a tag says; ``None`` for one of another program."""
    if number >> 32 != MAGIC:
        return None
    return Tag(number >> 28 & 0xF, number >> 16 & 0xFFF, number & 0xFFFF)


def aligned(length: int) -> int:
    return (length + ALIGN - 1) // ALIGN * ALIGN


def bytes_of(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes of a contiguous array, as they lie."""
    if not array.flags.c_contiguous:
        array = array.T
    return array.reshape(-1).view("u1")


def slot_of(array: npt.NDArray[Any], channel: int) -> Slot | None:
    """The channel's slot that an array lies on, if all of the slot is the array."""
    base: Any = array.base
    while base is not None and type(base) is not Slot:
        base = base.obj if type(base) is memoryview else getattr(base, "base", None)
    if type(base) is not Slot or array.nbytes != base.nbytes or base.channel != channel:
        return None
    return base if array.ctypes.data == base.address else None


def contiguous(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array itself where it lies in one piece, and else a copy that does."""
    flags = array.flags
    return array if flags.c_contiguous or flags.f_contiguous else array.copy(order="C")


def head_of(array: npt.NDArray[Any]) -> tuple[Any, ...]:
    return (array.dtype, array.shape, "C" if array.flags.c_contiguous else "F")


# Most messages of a channel are of a few types and shapes.
_packed: dict[Any, bytes] = {}
_unpacked: dict[bytes, Any] = {}
_MAX_HEADS = 256


def pack_head(head: tuple[Any, ...]) -> bytes:
    """The main message of an array: what the array is."""
    try:
        known = _packed.get(head)
    except TypeError:
        # A type that cannot be looked up.
        return pickle.dumps(head, 5)
    if known is None:
        if len(_packed) >= _MAX_HEADS:
            _packed.clear()
        known = pickle.dumps(head, 5)
        _packed[head] = known
    return known


def unpack_head(packed: bytes) -> Any:
    """What :func:`pack_head` has packed."""
    head = _unpacked.get(packed)
    if head is None:
        if len(_unpacked) >= _MAX_HEADS:
            _unpacked.clear()
        head = pickle.loads(packed)
        if len(packed) <= 1024:
            _unpacked[packed] = head
    return head


def array_on(buffer: Any, offset: int, head: tuple[Any, ...]) -> Any:
    """An array on a buffer, which is its base."""
    first, shape, order = head
    if order == "memoryview":
        view: Any = memoryview(buffer)[offset:] if offset else memoryview(buffer)
        return view if shape == (len(view),) and first == "B" else view.cast(first, shape)
    import numpy as np

    return np.ndarray(shape, first, buffer=buffer, offset=offset, order=order)


def rebuild(buffer: Any, dtype: Any, shape: tuple[int, ...], order: str) -> Any:
    """An array of a pickle, on its buffer."""
    return array_on(buffer, 0, (dtype, shape, order))


class Pickler(pickle.Pickler):
    """Pickles an object, and keeps its big buffers apart, with the slot that each is, if it is one."""

    def __init__(self, file: Any, channel: int) -> None:
        buffers: list[tuple[Any, Slot | None]] = []
        slots: dict[int, Slot] = {}

        # It has no reference to the pickler: a cycle would keep the channel's memory until somebody looks for cycles.
        def apart(buffer: pickle.PickleBuffer) -> bool:
            try:
                raw = buffer.raw()
            except BufferError:
                return True
            if raw.nbytes < MIN_BUFFER:
                return True
            buffers.append((raw, slots.get(id(buffer))))
            return False

        self.buffers = buffers
        self._slots = slots
        self._channel = channel
        self._kept: list[object] = []
        super().__init__(file, 5, buffer_callback=apart)

    def reducer_override(self, obj: Any) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is not None and type(obj) is numpy.ndarray and not obj.dtype.hasobject and obj.nbytes:
            array = contiguous(obj)
            buffer = pickle.PickleBuffer(bytes_of(array))
            slot = slot_of(array, self._channel)
            if slot is not None:
                # The buffer is kept, so that nothing else has its number.
                self._kept.append(buffer)
                self._slots[id(buffer)] = slot
            return rebuild, (buffer, *head_of(array))
        torch = sys.modules.get("torch")
        if torch is not None and type(obj) is getattr(torch, "Tensor", None):
            from .torch import reduce_tensor

            return reduce_tensor(obj)
        return NotImplemented


def pack_object(stream: bytes, where: list[tuple[int, int, int]]) -> bytes:
    """The main message of an object: for each buffer its part, offset and length; and the pickle."""
    return _COUNT.pack(len(where)) + b"".join(_WHERE.pack(*place) for place in where) + stream


def load_object(main: bytes, part: Callable[[int], Loan]) -> Any:
    """The object of a main message and its parts."""
    (count,) = _COUNT.unpack_from(main)
    places = [_WHERE.unpack_from(main, _COUNT.size + at * _WHERE.size) for at in range(count)]
    buffers: list[Any] = []
    for number, offset, length in places:
        loan = part(number)
        whole = offset == 0 and length == loan.nbytes
        buffers.append(loan if whole else memoryview(loan)[offset : offset + length])
    return pickle.loads(memoryview(main)[_COUNT.size + count * _WHERE.size :], buffers=buffers)
