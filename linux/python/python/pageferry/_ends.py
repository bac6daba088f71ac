"""The two ends of a channel.

An end is *free* until its first use: a socket and a token, which can travel to another process (inherited by fork,
pickled to a child, sent through a queue). Its first use *binds* it to the process that it is in: there the two sides
agree on the channel, and the pool is made. Taking the token decides who that process is, so a copy of an end that
somebody else uses is refused. Where both ends of a pair are still here, and no child has been forked that may have one,
binding one binds both.

Each end has a lock, which is held for a whole message: threads that share an end get whole messages, in some order.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import weakref

from . import _native, _wire
from ._errors import Forked, PeerGone, PoolFull, TimedOut, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

    import numpy.typing as npt

    How: TypeAlias = Literal["auto", "loan", "donate", "copy", "share"]
    Mode: TypeAlias = Literal["ro", "cow", "rw"]
    E = TypeVar("E", "Sender", "Receiver")
    T = TypeVar("T")
else:
    from collections import namedtuple

    How = Mode = str

_HOW = ("auto", "loan", "donate", "copy", "share")
_HERE = os.path.dirname(__file__)
_TRACE = os.environ.get("PAGEFERRY_TRACE", "0") not in ("", "0")
# Of a message that goes in the ring itself.
_INLINE = 16 << 10


if TYPE_CHECKING:

    class Outstanding(NamedTuple):
        """Memory of a channel that an object of this process holds."""

        what: str
        nbytes: int
        age: float
        channel: int
        where: str | None

else:
    Outstanding = namedtuple("Outstanding", "what nbytes age channel where")
    Outstanding.__doc__ = "Memory of a channel that an object of this process holds."


def outstanding() -> list[Outstanding]:
    """What objects of this process hold of channels, the oldest first: arrays that were received, and memory to be
    sent.

    ``what`` is "received, lent", "received, donated", "received, copied", "received, shared"; "filling", "lent",
    "donated", "shared". ``age`` is in seconds. ``where`` is the line that received or made it, where the environment
    has ``PAGEFERRY_TRACE=1``.
    """
    return [Outstanding(*line) for line in _native.outstanding()]


def _checked(timeout: float | None) -> None:
    if timeout is not None and not 0 <= timeout <= 1e9:
        raise UsageError(f"timeout is {timeout}; expected seconds from 0 on, or None")


def _whence() -> str | None:
    """The line of the program that called."""
    if not _TRACE:
        return None
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


# Forks that lie between the start of the program and now, in this process or before it.
_forks = 0
_all_ends: weakref.WeakSet[_End] = weakref.WeakSet()


def _forked() -> None:
    global _forks
    _forks += 1


def _forked_here() -> None:
    _forked()
    _native.forget()
    # Another thread may have held them.
    for end in _all_ends:
        end._lock = threading.RLock()
        end._fds = threading.Lock()


os.register_at_fork(after_in_parent=_forked, after_in_child=_forked_here)


class _Hold:
    """A lock that is waited for no longer than a call may take."""

    __slots__ = ("_lock", "_timeout")

    def __init__(self, lock: threading.RLock, timeout: float | None) -> None:
        self._lock = lock
        self._timeout = timeout

    def __enter__(self) -> None:
        if self._timeout is None:
            self._lock.acquire()
        elif not self._lock.acquire(timeout=min(self._timeout, threading.TIMEOUT_MAX)):
            raise TimedOut(f"another thread has used this end for {self._timeout} s")

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class _Pair:
    """What two ends know of each other while both are in the process that has made them."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self.ends = weakref.ref(sender), weakref.ref(receiver)
        self.forks = _forks
        self.lock = threading.RLock()

    def other(self, end: _End) -> _End | None:
        for of in self.ends:
            other = of()
            if other is not None and other is not end:
                return other
        return None


class _End:
    """See the top of the file."""

    _end: Any = None

    def __init__(self, config: dict[str, Any], socket: int, token: int) -> None:
        self._config = config
        self._socket = socket
        self._token = token
        self._pair: _Pair | None = None
        self._moved = False
        self._closed = False
        self._process = 0
        self._lock = threading.RLock()
        self._fds = threading.Lock()
        _all_ends.add(self)

    def _take(self) -> None:
        """Takes the token: nobody else can use the end from now on."""
        if self._closed:
            raise UsageError("the end is closed")
        if self._moved:
            raise UsageError("the end was sent to another process")
        try:
            os.eventfd_read(self._token)
        except BlockingIOError:
            raise UsageError("the end is used by another process, which has it by fork or was sent it") from None

    def _drop(self) -> None:
        """The end is bound, elsewhere, or closed: what it could travel by goes. Its own thread and the other end's may
        both do so.
        """
        with self._fds:
            fds = self._socket, self._token
            self._socket = self._token = -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    def _hold(self, timeout: float | None) -> _Hold:
        """The end's lock, for a ``with``."""
        return _Hold(self._lock, timeout)

    def _set(self, native: Any) -> None:
        self._end = native
        self._process = os.getpid()

    def _over(self, socket: int, config: _native.Config) -> Any:
        raise NotImplementedError

    def _bind(self) -> None:
        """Makes the channel, if this is its first use. Holds the end's lock."""
        pair, other = self._pair, None
        if pair is not None and pair.forks == _forks:
            with pair.lock:
                # The other end's thread may have bound both meanwhile.
                if self._end is not None:
                    return
                other = pair.other(self)
                if other is not None and not other._moved and not other._closed:
                    self._take()
                    other._take()
                    sender, receiver = _native.pair(_native.Config(**self._config))
                    for end in (self, other):
                        end._drop()
                        end._set(sender if isinstance(end, Sender) else receiver)
                    return
        self._take()
        with self._fds:
            socket, self._socket = self._socket, -1
        try:
            self._set(self._over(socket, _native.Config(**self._config)))
        except TimedOut:
            raise TimedOut(
                f"the other end was not used within {self._config['timeout']} s: give it to another process, or use it "
                "in a thread of this one, and raise timeout= where that takes longer"
            ) from None
        finally:
            self._drop()
        other = pair.other(self) if pair is not None else None
        if other is not None and other._end is None:
            # It is used elsewhere, and the copy here would hide that its process has ended.
            other._drop()
            other._moved = True

    def _ready(self) -> Any:
        if self._end is None:
            self._bind()
        elif self._process != os.getpid():
            raise Forked("the end belongs to the process that this one was forked from: give a child an end of its own")
        return self._end

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the end. What was sent still arrives, and what was received stays valid."""
        self._closed = True
        if self._end is not None:
            if self._process == os.getpid():
                self._end.close()
        else:
            self._drop()

    def __del__(self) -> None:
        # At the interpreter's end the kernel frees what there is.
        if getattr(self, "_end", None) is None and getattr(self, "_socket", -1) >= 0 and os is not None:
            self._drop()

    @property
    def closed(self) -> bool:
        """Whether this end was closed here."""
        return self._closed

    @property
    def level(self) -> str:
        """What loans promise: "mmu", "sealed", or "copy" where this host can do no better. Binds the end."""
        with self._lock:
            level: str = self._ready().level
            return level

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing import reduction

        with self._lock:
            if self._end is not None:
                raise UsageError(
                    "an end that is in use cannot be sent to another process: send it before its first use"
                )
            if self._closed:
                raise UsageError("the end is closed")
            if self._socket < 0:
                raise UsageError("the end is used by another process")
            fds = reduction.DupFd(self._socket), reduction.DupFd(self._token)
            self._moved = True
            return _arrive, (type(self), self._config, *fds)

    def __repr__(self) -> str:
        if self._closed:
            state = "closed"
        elif self._end is not None:
            state = "in use" if self._process == os.getpid() else "of a parent"
        else:
            state = "sent away" if self._moved else "free"
        return f"<pageferry {type(self).__name__.lower()}, {state}>"


def _arrive(kind: type[E], config: dict[str, Any], socket: Any, token: Any) -> E:
    """An end in the process that it was sent to."""
    return kind(config, socket.detach(), token.detach())


class Sender(_End):
    """The sending end of a pair. Threads may share it; a process that has forked keeps it, and its child is refused."""

    _end: _native.Sender | None

    def __init__(self, config: dict[str, Any], socket: int, token: int) -> None:
        super().__init__(config, socket, token)
        self._serial = 0
        # Types and shapes that the receiver was told, and the number of the last.
        self._known: dict[bytes, int] = {}
        self._told = 0

    def _over(self, socket: int, config: _native.Config) -> _native.Sender:
        return _native.Sender.over(socket, config)

    def _room(self, end: _native.Sender, call: Callable[[], T], timeout: float | None) -> T:
        """Does what takes slots. Where there are none, says who has them."""
        try:
            try:
                return call()
            except PoolFull:
                # Arrays in a cycle hold their memory until they are looked for.
                import gc

                gc.collect()
                return call()
        except PoolFull:
            held = [f"{line.nbytes} bytes {line.what} for {line.age:.1f} s" + _at(line) for line in outstanding()]
            raise PoolFull(
                "arrays of this process hold every slot, or leave no room for these bytes in one piece: "
                f"{'; '.join(held) or 'none of this channel'}"
            ) from None
        except TimedOut:
            _, out, _, _ = end.counters()
            messages = "1 message is" if out == 1 else f"{out} messages are"
            raise TimedOut(
                f"no room came free within {timeout} s: {messages} with the receiver "
                "(pageferry.outstanding() there says what holds them)"
            ) from None

    def _slot(self, nbytes: int, pieces: Sequence[tuple[int, Any]], timeout: float | None) -> _native.Slot:
        end: _native.Sender = self._ready()
        whence = _whence()
        if pieces:
            return self._room(end, lambda: end.buffer_of(pieces, nbytes, timeout, whence), timeout)
        return self._room(end, lambda: end.buffer(nbytes, timeout, whence), timeout)

    def empty(
        self,
        shape: int | Sequence[int],
        dtype: npt.DTypeLike = "f8",
        *,
        order: Literal["C", "F"] = "C",
        timeout: float | None = None,
    ) -> npt.NDArray[Any]:
        """An array on memory of the channel, to be filled and sent. What it holds at first is older, or zero.

        Waits while the receiver has all slots, ``timeout`` seconds at most. The slots are used again when the array is
        gone and the receiver has given them back.
        """
        import numpy as np

        _checked(timeout)
        dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if dtype.hasobject:
            raise UsageError(f"an array of {dtype} holds references, which mean nothing in another process")
        if any(length < 0 for length in shape):
            raise UsageError(f"shape is {shape}; expected no negative lengths")
        nbytes = dtype.itemsize
        for length in shape:
            nbytes *= length
        if nbytes == 0:
            return np.empty(shape, dtype, order=order)
        with self._hold(timeout):
            slot = self._slot(nbytes, (), timeout)
        array: npt.NDArray[Any] = _wire.array_on(slot, 0, (dtype, shape, order))
        return array

    def array(
        self, source: npt.ArrayLike, dtype: npt.DTypeLike | None = None, *, timeout: float | None = None
    ) -> npt.NDArray[Any]:
        """A copy of an array on memory of the channel, by the stores that are fastest here."""
        import numpy as np

        _checked(timeout)
        given = np.asarray(source, dtype)
        if given.dtype.hasobject or given.nbytes == 0 or not (given.flags.c_contiguous or given.flags.f_contiguous):
            copy = self.empty(given.shape, given.dtype, timeout=timeout)
            copy[...] = given
            return copy
        with self._hold(timeout):
            slot = self._slot(given.nbytes, [(0, _wire.bytes_of(given))], timeout)
        array: npt.NDArray[Any] = _wire.array_on(slot, 0, _wire.head_of(given))
        return array

    def buffer(self, nbytes: int, *, timeout: float | None = None) -> memoryview:
        """Bytes of the channel, to be filled and sent: what :meth:`empty` is without numpy."""
        if nbytes < 1:
            raise UsageError(f"nbytes is {nbytes}; expected 1 or more")
        _checked(timeout)
        with self._hold(timeout):
            return memoryview(self._slot(nbytes, (), timeout))

    def send(self, obj: Any, how: How = "auto", *, timeout: float | None = None) -> str:
        """Sends an array, or any object that can be pickled. Says how its bytes went: "loan", "donate", "copy",
        "share".

        ``how`` is for arrays, and for the arrays within an object: an array of :meth:`empty` or :meth:`array` is lent
        where it is, and whatever else is copied into the pool first. "auto" copies what is cheaper by copy. After
        "donate" an array of the channel's reads as zeros, and cannot be sent again. "share" shows the receiver what is
        written later.

        Waits while there is no room, ``timeout`` seconds at most; what was not sent by then can be sent again.
        """
        if how not in _HOW:
            raise UsageError(f"how is {how!r}; expected one of {', '.join(map(repr, _HOW))}")
        _checked(timeout)
        with self._hold(timeout):
            end: _native.Sender = self._ready()
            self._serial += 1
            numpy = sys.modules.get("numpy")
            if numpy is not None and type(obj) is numpy.ndarray and not obj.dtype.hasobject:
                return self._send_array(end, obj, how, timeout)
            if type(obj) is memoryview:
                return self._send_view(end, obj, how, timeout)
            return self._send_object(end, obj, how, timeout)

    def _tag(self, kind: int, parts: int) -> int:
        return _wire.tag(kind, self._serial, parts)

    def _send_array(self, end: _native.Sender, obj: npt.NDArray[Any], how: str, timeout: float | None) -> str:
        array = _wire.contiguous(obj)
        slot = _wire.slot_of(obj, end.channel) if obj.base is not None else None
        raw = _wire.bytes_of(array) if array.nbytes else b""
        return self._send_bytes(end, _wire.head_of(array), slot, raw, array.nbytes, how, timeout)

    def _send_view(self, end: _native.Sender, view: memoryview, how: str, timeout: float | None) -> str:
        if not view.c_contiguous:
            raise UsageError("a memoryview that is sent is contiguous")
        slot = view.obj if type(view.obj) is _native.Slot and view.nbytes == view.obj.nbytes else None
        if slot is not None and slot.channel != end.channel:
            slot = None
        head = (view.format, view.shape, "memoryview")
        raw = view.cast("B") if view.nbytes else b""
        return self._send_bytes(end, head, slot, raw, view.nbytes, how, timeout)

    def _send_bytes(
        self,
        end: _native.Sender,
        head: tuple[Any, ...],
        slot: _native.Slot | None,
        raw: Any,
        nbytes: int,
        how: str,
        timeout: float | None,
    ) -> str:
        main = _wire.pack_head(head)
        if slot is None and how == "share":
            raise UsageError("only memory of the channel is shared: make the array by `empty` or `array`")
        # The bytes follow the head, in their place of the cache's lines.
        start = _wire.aligned(4 + len(main))
        if start + nbytes <= min(_INLINE, self._config["inline_bytes"]) and how in ("auto", "copy"):
            lead = len(main).to_bytes(4, "little") + main
            self._copy(end, b"".join((lead, b"\0" * (start - len(lead)), raw)), _wire.ARRAY, 0, timeout)
            return "copy"
        if nbytes == 0:
            self._copy(end, raw, _wire.PART, 0, timeout)
            return self._copy(end, main, _wire.ARRAY, 1, timeout)
        tag = self._tag(_wire.KNOWN, self._number(end, main, timeout))
        if how == "copy":
            return self._room(end, lambda: end.send_bytes(raw, tag, timeout), timeout)
        if slot is not None:
            return self._send_slot(end, slot, how, tag, timeout)
        return self._send_pieces(end, [(0, raw)], nbytes, how, tag, timeout)

    def _number(self, end: _native.Sender, head: bytes, timeout: float | None) -> int:
        """The number of a type and shape, which the receiver is told when it is new."""
        number = self._known.get(head)
        if number is None:
            if len(self._known) >= _wire.MAX_KNOWN:
                self._known.clear()
            number = (self._told + 1) & _wire.MAX_PARTS
            self._copy(end, head, _wire.HEAD, number, timeout)
            self._told = self._known[head] = number
        return number

    def _copy(self, end: _native.Sender, data: Any, kind: int, parts: int, timeout: float | None) -> str:
        tag = self._tag(kind, parts)
        return self._room(end, lambda: end.send_bytes(data, tag, timeout), timeout)

    def _send_slot(
        self, end: _native.Sender, slot: _native.Slot, how: str, tag: int, timeout: float | None
    ) -> str:
        return self._room(end, lambda: end.send_slot(slot, how, tag, timeout), timeout)

    def _send_pieces(
        self,
        end: _native.Sender,
        pieces: list[tuple[int, Any]],
        nbytes: int,
        how: str,
        tag: int,
        timeout: float | None,
    ) -> str:
        return self._room(end, lambda: end.send_pieces(pieces, nbytes, how, tag, timeout), timeout)

    def _send_object(self, end: _native.Sender, obj: Any, how: str, timeout: float | None) -> str:
        file = io.BytesIO()
        pickler = _wire.Pickler(file, end.channel)
        pickler.dump(obj)
        where: list[tuple[int, int, int]] = []
        sent: list[str] = []
        pieces: list[tuple[int, Any]] = []
        length = 0
        tag = self._tag(_wire.PART, 0)
        # Memory of the channel goes as it is, and all else in one part.
        for raw, slot in pickler.buffers:
            if slot is not None and how != "copy":
                where.append((len(sent), 0, raw.nbytes))
                sent.append(self._send_slot(end, slot, how, tag, timeout))
            else:
                where.append((-1, length, raw.nbytes))
                pieces.append((length, raw))
                length = _wire.aligned(length + raw.nbytes)
        if pieces:
            if how == "share":
                raise UsageError("only memory of the channel is shared: make the array by `empty` or `array`")
            where = [(len(sent) if part < 0 else part, offset, nbytes) for part, offset, nbytes in where]
            sent.append(self._send_pieces(end, pieces, length, how, tag, timeout))
        main = _wire.pack_object(file.getvalue(), where)
        self._copy(end, main, _wire.OBJECT, len(sent), timeout)
        return sent[0] if sent else "copy"


def _at(line: Outstanding) -> str:
    return f" at {line.where}" if line.where else ""


class Message:
    """A message that is given back when it is released, at the end of a ``with`` at the latest."""

    def __init__(
        self,
        main: _native.HeldMessage,
        parts: list[_native.HeldMessage],
        head: tuple[Any, ...] | None = None,
    ) -> None:
        self._main = main
        self._parts = parts
        self._head = head

    @property
    def nbytes(self) -> int:
        """Bytes of the channel that it holds."""
        return sum(part.nbytes for part in self._parts) or self._main.nbytes

    @property
    def value(self) -> Any:
        """The object, made anew at each call. Its arrays lie on the message's memory."""
        main, parts = self._main, self._parts
        if self._head is not None:
            return _wire.array_on(main.loan(), 0, self._head)
        tag = _wire.read_tag(main.tag)
        if tag is None:
            return _bytes(main.loan())
        if tag.kind == _wire.OBJECT:
            loans: dict[int, _native.Loan] = {}

            def part(number: int) -> _native.Loan:
                if number not in loans:
                    loans[number] = parts[number].loan()
                return loans[number]

            return _wire.load_object(main.tobytes(), part)
        if tag.parts:
            return _wire.array_on(parts[0].loan(), 0, _wire.unpack_head(main.tobytes()))
        loan = main.loan()
        view = memoryview(loan)
        length = 4 + int.from_bytes(view[:4], "little")
        head = _wire.unpack_head(bytes(view[4:length]))
        return _wire.array_on(loan, _wire.aligned(length), head)

    @property
    def array(self) -> npt.NDArray[Any]:
        """The array that was sent."""
        import numpy as np

        value: npt.NDArray[Any] = self.value
        if type(value) is not np.ndarray:
            raise UsageError(f"the message is a {type(value).__name__}, not an array: see `value`")
        return value

    def release(self) -> None:
        """Gives the memory back. ``BufferError`` while arrays or views lie on it."""
        held = [self._main, *self._parts]
        users = sum(of.in_use() for of in held)
        if users:
            raise BufferError("arrays or views still lie on the message's memory")
        for of in held:
            of.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except UsageError:
            # It is released already.
            return
        except BufferError:
            # The body's own error keeps its arrays.
            if error is None:
                raise


def _bytes(loan: _native.Loan) -> Any:
    """A message of another program: bytes."""
    try:
        import numpy as np
    except ImportError:
        return memoryview(loan)
    return _wire.array_on(loan, 0, (np.dtype("u1"), (loan.nbytes,), "C"))


class Receiver(_End):
    """The receiving end of a pair. Threads may share it; a process that has forked keeps it, and its child is refused.
    """

    _end: _native.Receiver | None

    def __init__(self, config: dict[str, Any], socket: int, token: int) -> None:
        super().__init__(config, socket, token)
        self._parts: list[tuple[int, _native.HeldMessage]] = []
        # What the sender has told of types and shapes.
        self._heads: dict[int, bytes] = {}

    def _over(self, socket: int, config: _native.Config) -> _native.Receiver:
        return _native.Receiver.over(socket, config)

    def recv_message(self, mode: Mode = "cow", *, timeout: float | None = None) -> Message:
        """The next message, as a thing of its own: ``with b.recv_message() as m: use(m.array)``."""
        if mode not in ("ro", "cow", "rw"):
            raise UsageError(f"mode is {mode!r}; expected 'ro', 'cow' or 'rw'")
        _checked(timeout)
        until = None if timeout is None else _now() + timeout
        with self._hold(timeout):
            end: _native.Receiver = self._ready()
            while True:
                left = None if until is None else max(0.0, until - _now())
                held = end.recv(mode, left, _whence())
                tag = _wire.read_tag(held.tag)
                if tag is not None and tag.kind == _wire.PART:
                    self._parts.append((tag.serial, held))
                    continue
                if tag is not None and tag.kind == _wire.HEAD:
                    # Numbers that the sender has forgotten are told anew before they are used.
                    if len(self._heads) >= 2 * _wire.MAX_KNOWN:
                        del self._heads[next(iter(self._heads))]
                    self._heads[tag.parts] = held.tobytes()
                    continue
                if tag is not None and tag.kind == _wire.KNOWN:
                    self._parts.clear()
                    return Message(held, [], _wire.unpack_head(self._heads[tag.parts]))
                # Parts of a message that was not sent to its end go back.
                parts = [part for serial, part in self._parts if tag is not None and serial == tag.serial]
                self._parts.clear()
                if tag is not None and len(parts) != tag.parts:
                    raise UsageError(
                        f"a message of {tag.parts} parts came with {len(parts)}: the peer is another version"
                    )
                return Message(held, parts)

    def recv(self, mode: Mode = "cow", *, timeout: float | None = None) -> Any:
        """The next object. Waits for it, ``timeout`` seconds at most.

        ``mode`` says what is done with its arrays: "ro", they are read; "cow", they may be written, and the kernel
        copies each page at the first store; "rw", they are written, and what was lent is copied at once. The memory
        goes home when the last array on it is gone.

        ``PeerGone`` (an ``EOFError``) when the sender is gone and all was received.
        """
        return self.recv_message(mode, timeout=timeout).value

    def recv_torch(self, *, timeout: float | None = None) -> Any:
        """The next array as a tensor of torch's, which may be written: torch has no read-only tensors."""
        from .torch import tensor

        return tensor(self.recv("cow", timeout=timeout))

    def __iter__(self) -> Iterator[Any]:
        """Objects until the sender is gone."""
        while True:
            try:
                yield self.recv()
            except PeerGone:
                return


def _now() -> float:
    import time

    return time.monotonic()


def pair(
    *,
    slots: int = 8,
    slot_bytes: int = 4 << 20,
    level: Literal["mmu", "sealed", "copy"] = "mmu",
    budget: int = 1 << 30,
    capacity: int = 64,
    inline_bytes: int = 16 << 10,
    spin_us: int | None = None,
    timeout: float = 60.0,
) -> tuple[Sender, Receiver]:
    """Two ends, for two processes or two threads: what goes into the first comes out of the second.

    An end can go to another process until its first use: inherited by fork, as an argument of a
    ``multiprocessing.Process``, through a queue. Both processes must be programs that trust each other: objects are
    pickled.

    :param slots: slots of the pool, 1 to 4096. A message of more bytes takes several that lie side by side.
    :param slot_bytes: bytes of a slot, rounded up to 2 MB.
    :param level: what loans promise: see the book.
    :param budget: bytes that the peer can make this side hold, at most.
    :param capacity: messages that are sent and not given back, at most: a power of two.
    :param inline_bytes: bytes of a message that goes in the ring itself, at most.
    :param spin_us: microseconds that a side which waits looks before it sleeps.
    :param timeout: seconds that the first use of an end waits for the first use of the other.
    """
    config: dict[str, Any] = {
        "slots": slots,
        "slot_bytes": slot_bytes,
        "level": level,
        "budget": budget,
        "capacity": capacity,
        "inline_bytes": inline_bytes,
        "spin_us": spin_us,
        "timeout": timeout,
    }
    try:
        _native.Config(**config)
    except (OverflowError, TypeError) as error:
        raise UsageError(f"a value of the pair is out of its range: {error}") from None
    ends = _native.sockets()
    sender, receiver = (kind(config, socket, _token()) for kind, socket in zip((Sender, Receiver), ends))
    assert isinstance(sender, Sender) and isinstance(receiver, Receiver)
    sender._pair = receiver._pair = _Pair(sender, receiver)
    return sender, receiver


def _token() -> int:
    return os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
