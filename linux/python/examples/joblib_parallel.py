"""joblib over processes, with and without the drop-in.

    python examples/joblib_parallel.py

joblib's backend "multiprocessing" passes arguments and results through pipes of ``multiprocessing``. It pickles them by
itself, an array of a result twice, so that most of the time goes by there; what the drop-in saves is the pipe.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np
import pageferry.mp

MB = 8
ROUNDS = 5


def simulate(seed: int) -> Any:
    """A result of 8 MB."""
    return np.full((MB << 18,), seed, "f4")


def once(joblib: Any) -> float:
    with joblib.Parallel(n_jobs=2, backend="multiprocessing") as parallel:
        parallel(joblib.delayed(simulate)(seed) for seed in range(2))
        began = time.perf_counter()
        results = parallel(joblib.delayed(simulate)(seed) for seed in range(16))
        took = time.perf_counter() - began
    assert [int(result[-1]) for result in results] == list(range(16))
    return took


def main() -> None:
    try:
        import joblib
    except ImportError:
        print("joblib is not there: nothing to show (pip install joblib)")
        sys.exit(0)
    without, with_it = [], []
    for _ in range(ROUNDS):
        pageferry.mp.uninstall()
        without.append(once(joblib))
        pageferry.mp.install()
        with_it.append(once(joblib))
    ratio = statistics.median(before / after for before, after in zip(without, with_it))
    print(
        f"16 results of {MB} MB from two processes: {statistics.median(without) * 1000:.0f} ms, with "
        f"pageferry.mp.install() {statistics.median(with_it) * 1000:.0f} ms; "
        f"{ratio:.1f} times as fast (median of {ROUNDS})"
    )


if __name__ == "__main__":
    main()
