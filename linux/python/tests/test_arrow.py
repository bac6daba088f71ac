"""Tables of pyarrow's, where that is to be had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pageferry as pf
import pytest

pa: Any = pytest.importorskip("pyarrow")


def test_tables() -> None:
    a, b = pf.pair(slots=4, slot_bytes=2 << 20)
    tables = [
        pa.table({"x": np.arange(200_000), "s": ["a", None] * 100_000}),
        pa.table({"x": pa.array([], pa.int64())}),
        pa.concat_tables([pa.table({"x": [1, 2]}), pa.table({"x": [3]})]),
        pa.record_batch({"x": [1.5, None]}),
    ]
    for table in tables:
        pf.arrow.send(a, table)
        came = pf.arrow.recv(b)
        assert came.to_pydict() == table.to_pydict() and came.schema == table.schema
        del came
    pf.arrow.send(a, tables[0])
    came = pf.arrow.recv(b)
    column = came["x"].chunk(0)
    del came
    assert len(pf.outstanding()) == 1 and column[-1].as_py() == 199_999
    del column


def test_what_is_no_table() -> None:
    a, b = pf.pair(slots=2, slot_bytes=2 << 20)
    a.send(5)
    with pytest.raises(pf.UsageError, match="not a table"):
        pf.arrow.recv(b)
    with pytest.raises(pf.UsageError, match="does not fit"):
        pf.arrow.send(a, pa.table({"x": np.zeros(10 << 20, "u1")}))


def test_objects_of_arrow_s_within_others() -> None:
    a, b = pf.pair(slots=4, slot_bytes=2 << 20)
    table = pa.table({"x": np.arange(100_000)})
    a.send({"table": table, "n": 1})
    came = b.recv()
    assert came["table"].equals(table)
    del came
