"""What ``multiprocessing.Queue`` takes for an array, with and without the drop-in.

    python examples/queue_times.py [BYTES ...]

One process sends an array that it has just filled, the other one sums it up and answers. Each sleeps while the other
works. Both kinds of queues are there all the time, and are used by turns; the ratio is that of two neighbours.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from typing import Any

import numpy as np
import pageferry.mp

ROUNDS = 40


def answer(pairs: Any) -> None:
    turn = 0
    while True:
        there, back = pairs[turn % 2]
        array = there.get()
        if array is None:
            return
        back.put(float(array.sum()))
        del array
        turn += 1


def microseconds(pair: Any, array: Any, value: int) -> float:
    there, back = pair
    array[:] = value
    began = time.perf_counter()
    there.put(array)
    total = back.get()
    took = (time.perf_counter() - began) * 1e6
    assert total == float(array.sum())
    return took


def main() -> None:
    context = multiprocessing.get_context("fork")
    ours = pageferry.mp.get_context("fork")
    pairs = [(kind.Queue(), kind.Queue()) for kind in (context, ours)]
    process = context.Process(target=answer, args=(pairs,))
    process.start()
    print("    bytes   without      with   ratio: median, and its quartiles")
    for nbytes in [int(word) for word in sys.argv[1:]] or [1 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]:
        array = np.zeros(nbytes // 4, "f4")
        took = [[microseconds(pair, array, turn) for pair in pairs] for turn in range(ROUNDS)][ROUNDS // 8 :]
        ratios = statistics.quantiles([before / after for before, after in took], n=4)
        before, after = (statistics.median(column) for column in zip(*took))
        print(f"{nbytes:9d} {before:7.0f} us {after:7.0f} us   {ratios[1]:5.2f}  ({ratios[0]:.2f} to {ratios[2]:.2f})")
    pairs[0][0].put(None)
    process.join()


if __name__ == "__main__":
    main()
