"""Tensors of torch's. A tensor of the CPU goes as its bytes, by itself or within other objects.

    >>> import pageferry as pf
    >>> import torch                                            # doctest: +SKIP
    >>> a, b = pf.pair(slots=2, slot_bytes=2 << 20)             # doctest: +SKIP
    >>> x = pf.torch.empty(a, (256, 256))                       # doctest: +SKIP
    >>> a.send(x.fill_(1))                                      # doctest: +SKIP
    'loan'
    >>> b.recv().sum()                                          # doctest: +SKIP
    tensor(65536.)
"""

from __future__ import annotations

import warnings
from importlib import import_module

from ._ends import Sender
from ._errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import numpy.typing as npt


def _torch() -> Any:
    return import_module("torch")


def tensor(array: npt.NDArray[Any]) -> Any:
    """A tensor on an array's memory. Of a read-only array it is a copy: torch has no read-only tensors."""
    torch = _torch()
    if type(array) is torch.Tensor:
        return array
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)


def empty(sender: Sender, shape: int | Sequence[int], dtype: Any = None, *, timeout: float | None = None) -> Any:
    """A tensor on memory of the channel, to be filled and sent: what ``Sender.empty`` is for arrays."""
    torch = _torch()
    dtype = torch.get_default_dtype() if dtype is None else dtype
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    nbytes = torch.empty((), dtype=dtype).element_size()
    for length in shape:
        nbytes *= length
    if nbytes == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(sender.empty(nbytes, "u1", timeout=timeout)).view(dtype).reshape(shape)


def bytes_of(of: Any) -> npt.NDArray[Any]:
    """The bytes of a tensor of the CPU, as an array on its memory."""
    torch = _torch()
    if of.device.type != "cpu":
        raise UsageError(f"a tensor on {of.device} is sent after `.cpu()`")
    if of.layout is not torch.strided:
        raise UsageError(f"a tensor of layout {of.layout} is sent after `.to_dense()`")
    flat: npt.NDArray[Any] = of.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat


def reduce_tensor(of: Any) -> tuple[Any, ...]:
    """For the pickler: the tensor's bytes as an array, which goes by itself."""
    flat = bytes_of(of) if of.numel() else None
    return rebuild, (flat, str(of.dtype).removeprefix("torch."), tuple(of.shape), bool(of.requires_grad))


def rebuild(flat: npt.NDArray[Any] | None, dtype: str, shape: tuple[int, ...], requires_grad: bool) -> Any:
    """The tensor of :func:`reduce_tensor`."""
    torch = _torch()
    kind = getattr(torch, dtype)
    if flat is None:
        made = torch.empty(shape, dtype=kind)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            made = tensor(flat).view(kind).reshape(shape)
    return made.requires_grad_() if requires_grad else made
