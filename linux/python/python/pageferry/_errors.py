"""What goes wrong. The class says who is to blame; each is also the exception of Python's own that it resembles."""

from __future__ import annotations


class Error(Exception):
    """An error of a channel."""


class PeerError(Error, ConnectionError):
    """The peer is at fault. The channel is closed for good; what was received before stays valid."""


class PeerGone(PeerError, EOFError):
    """The peer has closed its end, or its process has ended. All that it had sent was received."""


class HostError(Error, OSError):
    """This host's kernel lacks something, or refuses it."""


class BudgetError(Error, MemoryError):
    """What this side has set aside for the channel does not suffice."""


class UsageError(Error, ValueError):
    """The caller asked for what cannot be."""


class Forked(UsageError):
    """The end belongs to the process that this one was forked from."""


class PoolFull(UsageError):
    """Arrays of this process hold all slots: waiting would never end."""


class TimedOut(Error, TimeoutError):
    """The time is up."""
