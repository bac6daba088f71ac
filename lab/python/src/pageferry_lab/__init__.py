"""Runs and sweeps of pageferry, as data frames and figures.

pageferry simulates kernels of five papers about virtual memory. This package drives the command ``pageferry``, which it
finds by the environment's ``PAGEFERRY``, on ``PATH``, or beside the Python that runs; it computes nothing itself.

>>> import pageferry_lab as lab
>>> result = lab.run("bw-pipe", machine="xeon-up", kernel="sf_buf", total_bytes="256K", quick=True)
>>> result["machine"], result["payload_ok"]
('xeon-up', True)
>>> frame = lab.sweep("pipe-sizes", machine="xeon-up", kernel=["original", "sf_buf"], quick=True,
...                   vary={"chunk_bytes": "4K..16K:*2"}, total_bytes="64K")
>>> frame.chunk_bytes.unique().tolist()
[4096, 8192, 16384]
"""

from ._command import (
    CommandError,
    CommandNotFound,
    LawBroken,
    PageferryError,
    Progress,
    command,
)
from ._plot import plot
from ._sweeps import collect, plan, read, run, run_part, sweep

__version__ = "0.1.0"

__all__ = [
    "CommandError",
    "CommandNotFound",
    "LawBroken",
    "PageferryError",
    "Progress",
    "collect",
    "command",
    "plan",
    "plot",
    "read",
    "run",
    "run_part",
    "sweep",
]

for _error in (PageferryError, CommandError, CommandNotFound, LawBroken):
    # As users know them, in tracebacks.
    _error.__module__ = __name__
