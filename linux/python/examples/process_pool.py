"""A pool of processes that works on big arrays, with and without the drop-in: nothing of the pool's code differs.

    python examples/process_pool.py
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import statistics
import time
from typing import Any

import numpy as np
import pageferry.mp

MB = 8
ROUNDS = 7


def smooth(image: Any) -> Any:
    """A filter that takes an image and gives one."""
    return (image[:-1] + image[1:]) * 0.5


def once(images: list[Any]) -> float:
    """Seconds for all images, in a pool of two processes that is made for it."""
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        list(pool.map(smooth, images[:2]))
        began = time.perf_counter()
        smoothed = list(pool.map(smooth, images))
        took = time.perf_counter() - began
    assert all(image.shape == (1023, MB << 8) for image in smoothed)
    return took


def main() -> None:
    images = [np.random.default_rng(seed).random((1024, MB << 8), "f4") for seed in range(8)]
    without, with_it = [], []
    for _ in range(ROUNDS):
        pageferry.mp.uninstall()
        without.append(once(images))
        pageferry.mp.install()
        with_it.append(once(images))
    ratio = statistics.median(before / after for before, after in zip(without, with_it))
    print(
        f"{len(images)} images of {MB} MB to two processes and back: {statistics.median(without) * 1000:.0f} ms, with "
        f"pageferry.mp.install() {statistics.median(with_it) * 1000:.0f} ms; "
        f"{ratio:.1f} times as fast (median of {ROUNDS})"
    )


if __name__ == "__main__":
    main()
