"""torch's DataLoader with two workers, with and without the drop-in.

    python examples/torch_dataloader.py

torch passes a tensor by a file of shared memory each, in /dev/shm, and its descriptor by a connection of its own. An
array goes through the queue; with the drop-in that is one block of memory without a name, and `torch.from_numpy` makes
it a tensor where it is.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np
import pageferry.mp

SAMPLES, BATCH = 256, 16
ROUNDS = 5


class Images:
    """A dataset: an image of 600 KB and its label."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.full((3, 224, 224), index, "f4"), index


def as_arrays(samples: list[Any]) -> tuple[Any, Any]:
    """A batch of arrays: these go through the queue's pipe as they are."""
    images, labels = zip(*samples)
    return np.stack(images), np.array(labels)


def epoch(data: Any, collate: Any) -> float:
    """Seconds from the second batch to the last."""
    loader = iter(data.DataLoader(Images(), batch_size=BATCH, num_workers=2, collate_fn=collate))
    next(loader)
    began = time.perf_counter()
    seen = sum(len(labels if collate is None else to_tensors((images, labels))[1]) for images, labels in loader)
    took = time.perf_counter() - began
    assert seen == SAMPLES - BATCH
    return took


def to_tensors(batch: tuple[Any, Any]) -> tuple[Any, Any]:
    import torch

    return torch.from_numpy(batch[0]), torch.from_numpy(batch[1])


def main() -> None:
    try:
        from torch.utils import data
    except ImportError:
        print("torch is not there: nothing to show (apt install python3-torch, or pip install torch)")
        sys.exit(0)
    tensors, without, with_it = [], [], []
    for _ in range(ROUNDS):
        pageferry.mp.uninstall()
        tensors.append(epoch(data, None))
        without.append(epoch(data, as_arrays))
        pageferry.mp.install()
        with_it.append(epoch(data, as_arrays))
    for what, others in (("torch's own tensors", tensors), ("arrays without it", without)):
        ratio = statistics.median(before / after for before, after in zip(others, with_it))
        print(
            f"{SAMPLES - BATCH} images in batches of {BATCH}: {what} "
            f"{statistics.median(others) * 1000:.0f} ms, arrays with "
            f"pageferry.mp.install() {statistics.median(with_it) * 1000:.0f} ms; "
            f"{ratio:.1f} times as fast (median of {ROUNDS})"
        )


if __name__ == "__main__":
    main()
