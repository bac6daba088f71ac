"""The drop-in for ``multiprocessing``: what is big goes by memory, and not through the pipe.

    >>> import pageferry as pf
    >>> pf.mp.install()     # queues, pipes, pools and executors that are made from now on

A message of 128 KB or more is copied once, to a block of memory; its descriptor goes through the connection, and the
receiver's arrays lie on a private mapping of the block, writable, copy-on-write. When the last of them is gone the
kernel knows, and the sender uses the block again. What is smaller, and all messages where no block is to be had, go as
they always did, in the same order, through the same connection.

# What changes
* A connection of ``Pipe()`` is a Unix socket also where it goes one way, where ``multiprocessing`` makes a pipe.
* Objects are pickled by protocol 5, and arrays that arrive do not own their memory: ``array.resize()`` refuses.
* One array of a message keeps the memory of all of it.

# What does not
Locks, the order of messages, what an error is, and what a message is when it was sent: a value. A message survives its
sender. Connections of ``Listener`` and ``Client``, and so those of managers, are the interpreter's own.
"""

from __future__ import annotations

import copyreg
import errno
import functools
import io
import itertools
import multiprocessing
import multiprocessing.connection as _connection
import multiprocessing.queues as _queues
import multiprocessing.spawn as _spawn
import os
import pickle
import runpy
import socket
import sys
import types
import weakref
from collections import ChainMap
from multiprocessing import reduction as _reduction

from ._native import (
    ArrivedPickle,
    Pickle,
    PickleWriter,
    Unmarked,
    held_blocks,
    limit_blocks,
    recv_message,
    send_message,
    tidy_blocks,
    trim_blocks,
)

__all__ = [
    "Connection",
    "JoinableQueue",
    "Pipe",
    "Queue",
    "SimpleQueue",
    "configure",
    "get_context",
    "install",
    "installed",
    "outstanding",
    "trim",
    "uninstall",
]

# Bytes of a message that goes by a block, and of a buffer that goes beside its pickle. A shorter message takes less
# when it is copied to the socket and out of it, as long as the socket can hold it.
_THRESHOLD = 128 << 10
_MIN_BUFFER = 16 << 10

# What configure() was told, for children.
_settings = {"threshold": _THRESHOLD, "budget": None, "kept": None}


def configure(*, threshold: int | None = None, budget: int | None = None, kept: int | None = None) -> None:
    """Sets the bytes from which on a message goes by a block; the bytes of memory that this process lends and keeps at
    most; and those that it keeps for later. What is not said becomes the default: 128 KB, an eighth of the host's
    memory and 1 GB at most, and an eighth of that."""
    for name, value in (("threshold", threshold), ("budget", budget), ("kept", kept)):
        if value is not None and (not isinstance(value, int) or value < 0):
            raise ValueError(f"{name} is {value!r}; expected bytes, from 0 on, or None")
    threshold = _THRESHOLD if threshold is None else threshold
    _settings.update(threshold=threshold, budget=budget, kept=kept)
    limit_blocks(budget, kept)


def trim() -> None:
    """Frees the memory that was lent by this process and that nobody has any more."""
    trim_blocks()


def outstanding() -> dict[str, int]:
    """Blocks of this process: their bytes, how many they are, how many somebody has, how many were made so far, how
    often one was used again, and how many were left to receivers who keep them."""
    return dict(zip(("bytes", "blocks", "out", "made", "again", "left"), held_blocks()))


# Pickles


def _reduce_array(array):
    """An array as it is pickled, so that it is in one piece, and can be written to where it arrives: this is what
    `multiprocessing` does, by copies."""
    if array.dtype.hasobject or array.nbytes < _MIN_BUFFER and array.flags.writeable:
        return array.__reduce_ex__(5)
    if not array.flags.forc:
        array = array.copy(order="C")
    reduced = array.__reduce_ex__(5)
    if array.flags.writeable or len(reduced) != 2:
        return reduced
    rebuild, (buffer, *rest) = reduced
    if type(buffer) is not pickle.PickleBuffer:
        return reduced
    return rebuild, (pickle.PickleBuffer(Unmarked(buffer.raw())), *rest)


# What this module knows of packages that may not be there.
_arrays = {}


class _Pickler(_reduction.ForkingPickler):
    """The pickler of queues and connections."""

    # Whatever was registered comes first.
    dispatch_table = ChainMap(_reduction.ForkingPickler._extra_reducers, copyreg.dispatch_table, _arrays)
    __init__ = pickle.Pickler.__init__

    @classmethod
    def dumps(cls, obj, protocol=None):
        """What a connection sends, and what is the bytes of a pickle to everybody else."""
        if not _arrays and hasattr(sys.modules.get("numpy"), "ndarray"):
            _arrays[sys.modules["numpy"].ndarray] = _reduce_array
        pickled = PickleWriter(_settings["threshold"], min(_MIN_BUFFER, _settings["threshold"]))
        cls(pickled, 5, True, pickled.apart).dump(obj)
        return pickled.finish()

    @staticmethod
    def loads(message):
        """The object of what a connection has received."""
        if type(message) is _Token:
            message = message.arrived
        if type(message) is ArrivedPickle:
            return pickle.loads(message.stream, buffers=message.buffers)
        return pickle.loads(message)


class _Whole:
    """A pickle and its buffers, to be pickled as one thing that is loaded without this package."""

    def __init__(self, stream, buffers):
        self._stream, self._buffers = stream, buffers

    def __reduce__(self):
        # Arrays on what was an array of bytes can be written to.
        buffers = [bytearray(buffer) for buffer in self._buffers]
        return functools.partial(pickle.loads, buffers=buffers), (self._stream,)


def _complete(stream, buffers):
    """The bytes of one pickle that has all in it."""
    stream = bytes(stream)
    return pickle.dumps(_Whole(stream, buffers), 5) if buffers else stream


_tokens = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def _arrived(number):
    arrived = _tokens.get(number)
    if arrived is None:
        raise pickle.UnpicklingError(
            "these bytes stand for a message that this process has received, and are gone or of another process: "
            "send on what they were loaded to, or receive with a connection of Pipe()"
        )
    return _Pickler.loads(arrived)


class _Token(bytes):
    """What `recv_bytes` of a queue's connection gives for a message on a block: the bytes of a pickle, which is loaded
    in this process and while this object lives."""

    def __new__(cls, arrived):
        number = next(_numbers)
        _tokens[number] = arrived
        self = super().__new__(cls, b"\x80\x02cpageferry.mp\n_arrived\nI%d\n\x85R." % number)
        self.arrived = arrived
        return self

    def __reduce__(self):
        return bytes, (_complete(self.arrived.stream, self.arrived.buffers),)


# Connections


class Connection(_connection.Connection):
    """A connection of ``multiprocessing`` whose big messages go by memory. Both ends are such connections."""

    def _send_bytes(self, buf):
        try:
            send_message(self._handle, buf, _settings["threshold"])
        except ConnectionResetError:
            if self._readable:
                raise
            # A socket says so where a pipe says this.
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None

    def send_bytes(self, buf, offset=0, size=None):
        if type(buf) is _Token:
            arrived, buf = buf.arrived, PickleWriter(0, 0)
            buf.write(arrived.stream)
            for buffer in arrived.buffers:
                buf.apart(pickle.PickleBuffer(buffer))
            buf = buf.finish()
        if type(buf) is not Pickle or offset or size is not None:
            return super().send_bytes(buf, offset, size)
        self._check_closed()
        self._check_writable()
        self._send_bytes(buf)

    def send(self, obj):
        self._check_closed()
        self._check_writable()
        self._send_bytes(_Pickler.dumps(obj))

    def _recv_bytes(self, maxsize=None):
        message = recv_message(self._handle, maxsize)
        if message is None:
            return None
        taken = io.BytesIO()
        taken.write(message if type(message) is bytes else _complete(message.stream, message.buffers))
        return taken

    def recv_bytes(self, maxlength=None):
        self._check_closed()
        self._check_readable()
        if maxlength is not None and maxlength < 0:
            raise ValueError("negative maxlength")
        message = recv_message(self._handle, maxlength)
        if message is None:
            self._bad_message_length()
        return message if type(message) is bytes else self._bytes_of(message)

    def _bytes_of(self, arrived):
        return _complete(arrived.stream, arrived.buffers)

    def _poll(self, timeout):
        if timeout != 0:
            tidy_blocks()
        return super()._poll(timeout)

    def recv(self):
        self._check_closed()
        self._check_readable()
        return _Pickler.loads(recv_message(self._handle, None, True))


class _QueueConnection(Connection):
    """What a queue receives it loads, and does not hand on."""

    def _bytes_of(self, arrived):
        return _Token(arrived)


def _rebuild_connection(kind, fd, readable, writable):
    return kind(fd.detach(), readable, writable)


def _reduce_connection(connection):
    fd = _reduction.DupFd(connection.fileno())
    return _rebuild_connection, (type(connection), fd, connection.readable, connection.writable)


_reduction.register(Connection, _reduce_connection)
_reduction.register(_QueueConnection, _reduce_connection)


def _pipe(kind, duplex):
    one, other = socket.socketpair()
    one.setblocking(True)
    other.setblocking(True)
    return kind(one.detach(), writable=duplex), kind(other.detach(), readable=duplex)


def Pipe(duplex=True):
    """Two connections that are each other's peer."""
    return _pipe(Connection, bool(duplex))


# Queues


class _ConnectionOfQueues(types.ModuleType):
    """`multiprocessing.connection` to `multiprocessing.queues`."""

    @staticmethod
    def Pipe(duplex=True):
        return _pipe(_QueueConnection, bool(duplex))

    def __getattr__(self, name):
        return getattr(_connection, name)


_connection_of_queues = _ConnectionOfQueues(_connection.__name__)
_globals = {**vars(_queues), "_ForkingPickler": _Pickler, "connection": _connection_of_queues}


def _rebound(base):
    """The functions of a class of `multiprocessing.queues`, with the pickler and the connections of this module."""
    members = {}
    for name, member in vars(base).items():
        function = member.__func__ if isinstance(member, staticmethod) else member
        if isinstance(function, types.FunctionType):
            rebound = types.FunctionType(
                function.__code__, _globals, function.__name__, function.__defaults__, function.__closure__
            )
            rebound.__kwdefaults__ = function.__kwdefaults__
            rebound.__doc__ = function.__doc__
            members[name] = staticmethod(rebound) if isinstance(member, staticmethod) else rebound
    return members


def _queue(name, doc, *bases):
    members = _rebound(bases[-1])
    init = members["__init__"]

    def __init__(self, *args, ctx=None, **kwargs):
        init(self, *args, ctx=ctx or multiprocessing.get_context(), **kwargs)

    kind = type(name, bases, {**members, "__init__": __init__, "__doc__": doc, "__module__": __name__})
    _globals[name] = kind
    return kind


Queue = _queue("Queue", "``multiprocessing.Queue`` whose big messages go by memory.", _queues.Queue)
JoinableQueue = _queue(
    "JoinableQueue", "``multiprocessing.JoinableQueue`` whose big messages go by memory.", Queue, _queues.JoinableQueue
)
SimpleQueue = _queue(
    "SimpleQueue", "``multiprocessing.SimpleQueue`` whose big messages go by memory.", _queues.SimpleQueue
)


class _Context:
    """What a context of ``multiprocessing`` makes, of the kinds of this module."""

    def get_context(self, method=None):
        return self if method is None else get_context(method)

    def Pipe(self, duplex=True):
        return Pipe(duplex)

    def Queue(self, maxsize=0):
        return Queue(maxsize, ctx=self)

    def JoinableQueue(self, maxsize=0):
        return JoinableQueue(maxsize, ctx=self)

    def SimpleQueue(self):
        return SimpleQueue(ctx=self)


@functools.cache
def _context_of(base):
    return type(base.__name__, (_Context, base), {"__module__": __name__})()


def get_context(method=None):
    """A context of ``multiprocessing`` whose pipes and queues, and pools made of these, are those of this module."""
    context = multiprocessing.get_context(method)
    return context if isinstance(context, _Context) else _context_of(type(context))


# The drop-in

_replaced = []


class _InChild:
    """Loaded in a child before the parent's program is: it installs the drop-in there."""

    def __reduce__(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_mp_child.py")
        return runpy.run_path, (script, {"settings": dict(_settings)})


def _replace(module, name, value):
    _replaced.append((module, name, getattr(module, name), value))
    setattr(module, name, value)


def installed() -> bool:
    """Whether the drop-in is installed in this process."""
    return bool(_replaced)


def install(*, threshold=None, budget=None, kept=None):
    """Has ``multiprocessing`` make its pipes and queues by this module, in this process and in those that it starts
    from now on. What was made before stays as it is. The arguments are those of `configure`."""
    given = {"threshold": threshold, "budget": budget, "kept": kept}
    given = {name: value for name, value in given.items() if value is not None}
    if given.items() - _settings.items():
        configure(**given)
    if _replaced:
        return
    prepare = _spawn.get_preparation_data

    def get_preparation_data(name):
        data = prepare(name)
        data["pageferry"] = _InChild()
        return data

    _replace(_connection, "Pipe", Pipe)
    _replace(_queues, "connection", _connection_of_queues)
    _replace(_queues, "_ForkingPickler", _Pickler)
    _replace(_spawn, "get_preparation_data", get_preparation_data)


def uninstall():
    """Has ``multiprocessing`` make its own pipes and queues again. Those that were made meanwhile go on."""
    while _replaced:
        module, name, before, ours = _replaced.pop()
        # What somebody else has put there since is left to them.
        if getattr(module, name) is ours:
            setattr(module, name, before)
