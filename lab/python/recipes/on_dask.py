"""A sweep on the workers of Dask: python on_dask.py FOLDER [SCHEDULER].

Without the address of a scheduler, two workers of this host make the runs. Workers elsewhere need this package and the
command `pageferry`, of one version, and a folder that all hosts see.
"""

import sys
from pathlib import Path

from dask.distributed import Client, LocalCluster, as_completed

import pageferry_lab as lab


def main(folder: Path, scheduler: str | None) -> None:
    parts = lab.plan(
        folder / "parts",
        "pipe-sizes",
        parts=4,
        machine=["xeon-mp", "today"],
        kernel=["original", "sf_buf"],
        vary={"chunk_bytes": "4K..32K:*2"},
        quick=True,
    )
    cluster = scheduler or LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with Client(cluster) as client:
        # A part takes all cores of its host, unless it is told how many it may have.
        futures = client.map(lab.run_part, [part.absolute() for part in parts], jobs=1, pure=False)
        for done, future in enumerate(as_completed(futures), 1):
            print(f"{done} of {len(parts)} parts: {future.result().name}")
    frame = lab.collect(folder / "parts", out=folder / "sweep")
    print(frame.pivot_table("bandwidth_mb_s", "chunk_bytes", ["machine", "kernel"]).round(1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
