"""What tests share: one small sweep, and a folder of their own."""

from pathlib import Path

import pandas as pd
import pytest

import pageferry_lab as lab

SMALL = {
    "machine": ["xeon-up", "today"],
    "kernel": ["original", "sf_buf"],
    "vary": {"chunk_bytes": "4K..16K:*2"},
    "quick": True,
    "total_bytes": "64K",
}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "out"
    lab.sweep("pipe-sizes", **SMALL, out=out)
    return out


@pytest.fixture
def frame(folder: Path) -> pd.DataFrame:
    return lab.read(folder)
