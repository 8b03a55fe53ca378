"""States survive as bytes, exactly, and damaged bytes are refused with one error."""

from contextlib import suppress
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as npst

from flyball_contracts.errors import DecodeError
from flyball_streams.engine.packing import pack, unpack

KINDS = ("bool", "u1", "u4", "i4", "i8", "f4", "f8")
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(), st.binary()
)
arrays = st.sampled_from(KINDS).flatmap(
    lambda kind: npst.arrays(np.dtype(kind), npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
keys = st.one_of(st.text(), st.integers(-(2**63), 2**63), st.tuples(st.text(), st.integers(0, 9)))
states = st.recursive(
    st.one_of(scalars, arrays), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        mine: np.ndarray[Any, Any] = cast("Any", a)
        return bool(mine.dtype == b.dtype and mine.shape == b.shape and mine.tobytes() == b.tobytes())
    if isinstance(a, dict):
        items: dict[Any, Any] = cast("Any", a)
        return list(items) == list(b) and all(same(v, b[k]) for k, v in items.items())
    if isinstance(a, list):
        members: list[Any] = cast("Any", a)
        return len(members) == len(b) and all(map(same, members, b))
    return type(a) is type(b) and bool(a == b)


@given(states)
def test_a_state_comes_back_as_it_was(state: Any) -> None:
    raw = pack(state)
    back = unpack(raw)
    assert same(state, back)
    assert pack(back) == raw


@given(states, st.data())
@settings(max_examples=300)
def test_damaged_bytes_raise_the_contracts_own_error_only(state: Any, data: st.DataObject) -> None:
    raw = bytearray(pack(state))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        unpack(bytes(raw[: data.draw(st.integers(0, len(raw)))]))


def test_an_array_that_can_be_restored_can_also_be_written_to() -> None:
    unpack(pack(np.zeros(3, np.float32)))[0] = 1.0


@pytest.mark.parametrize("kind", ["O", "S3", "c8", "f2"])
def test_arrays_that_no_state_has_are_refused_when_written(kind: str) -> None:
    with pytest.raises(ValueError, match="do not go into states"):
        pack(np.zeros(2, kind))
