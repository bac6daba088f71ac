"""Tensors, where torch is to be had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pageferry as pf
import pytest

torch: Any = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool", "complex64"])
def test_tensors(dtype: str) -> None:
    a, b = pf.pair(slots=4, slot_bytes=2 << 20)
    kind = getattr(torch, dtype)
    for shape in ((), (0,), (3, 5), (400, 500)):
        given = (torch.rand(shape) * 100).to(kind)
        for tensor in (given, given.T if given.ndim == 2 else given):
            for mode in ("ro", "cow", "rw"):
                a.send(tensor)
                came = b.recv(mode)
                assert came.dtype == kind and came.shape == tensor.shape and torch.equal(came, tensor)
                if came.numel():
                    was = tensor.clone()
                    came.zero_()
                    assert torch.equal(tensor, was)
                del came


def test_a_tensor_on_the_channel_s_memory() -> None:
    a, b = pf.pair(slots=3, slot_bytes=2 << 20)
    x = pf.torch.empty(a, (300, 400))
    x.fill_(3)
    assert a.send(x) == "loan"
    y = b.recv()
    x.fill_(4)
    assert (y == 3).all() and y.data_ptr() % 4096 == 0
    a.send({"x": x, "y": [torch.ones(3), np.ones(3)]})
    came = b.recv("ro")
    assert (came["x"] == 4).all() and came["y"][0].sum() == 3
    assert pf.torch.empty(a, 0).numel() == 0
    del x, y, came


def test_an_array_as_a_tensor() -> None:
    a, b = pf.pair(slots=2, slot_bytes=2 << 20)
    a.send(np.full((200, 500), 2.0), "loan")
    t = b.recv_torch()
    t += 1
    assert t.sum() == 300_000
    a.send(torch.ones(70_000, requires_grad=True))
    assert b.recv_torch().requires_grad


def test_tensors_that_cannot_go() -> None:
    a, b = pf.pair(slots=2, slot_bytes=2 << 20)
    with pytest.raises(pf.UsageError, match="to_dense"):
        a.send(torch.eye(3).to_sparse())
    with pytest.raises(pf.UsageError, match="cpu"):
        a.send(torch.empty(3, device="meta"))
    a.send(1)
    assert b.recv() == 1
