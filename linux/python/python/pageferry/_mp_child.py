"""Run in a child that ``multiprocessing`` has started, before anything of its parent's program: the child of a process
with the drop-in has it, too.

It is run by its path (``runpy``), because the child does not have its parent's ``sys.path`` yet.
"""

import os
import sys

try:
    from pageferry import mp
except ImportError:
    sys.path.append(os.path.dirname(os.path.dirname(__file__)))
    from pageferry import mp

# Given by who runs this file.
mp.install(**globals()["settings"])
