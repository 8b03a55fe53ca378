"""State to bytes and back, exactly: containers, numbers, text, bytes, arrays, and structs of a known type.

msgpack with extension types for arrays and for dicts whose keys are not text; unlike pickle, reading it
runs no code.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import jax
import msgspec
import numpy as np

from flyball_contracts.errors import DecodeError

_ARRAY = 1
_PAIRS = 2
_KINDS = {np.dtype(kind).str for kind in ("bool", "u1", "u4", "i4", "i8", "f4", "f8")}
S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T", bound=tuple[Any, ...])


def pack(state: Any) -> bytes:
    """Serialize a state made of dicts, lists, tuples, scalars, text, bytes, NumPy and JAX arrays.

    Raises ``ValueError`` for an array whose type :func:`unpack` would refuse.
    """
    return _encoder.encode(_plain(state))


def unpack(raw: bytes) -> Any:
    """Deserialize a state (tuples come back as lists); raises :class:`DecodeError`."""
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DecodeError(f"not a lane state ({len(raw)} bytes): {error}") from error


def pack_struct(value: msgspec.Struct) -> bytes:
    """Serialize a struct without arrays and sets (sets have no order)."""
    return _encoder.encode(value)


def unpack_struct(raw: bytes, kind: type[S]) -> S:
    """Deserialize a struct; raises :class:`DecodeError`."""
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise DecodeError(f"not a {kind.__name__}: {error}") from error


def arrays(state: tuple[Any, ...]) -> list[Any]:
    """Arrays of a model's state, copied to the host, in field order, nested states included."""
    return [np.asarray(array) for array in jax.tree.leaves(state)]


def wiped(state: T, fresh: T, series: Sequence[int]) -> T:
    """Model state with some series reset to ``fresh``; the series axis is the last, of length 1 if series share it."""

    def copied(old: Any, new: Any) -> Any:
        array = np.array(old)
        if array.ndim and array.shape[-1] > 1:
            array[..., series] = np.asarray(new)[..., series]
        return array

    return cast("T", jax.tree.map(copied, state, fresh))


def on_host(state: T) -> T:
    """Model state with its arrays copied to the host."""
    copied: T = jax.tree.map(np.array, state)
    return copied


def with_series(state: T, other: T, series: Sequence[int], their_series: Sequence[int]) -> T:
    """Model state with some series copied from ``their_series`` of another state, and shared arrays copied whole."""

    def copied(own: Any, found: Any) -> Any:
        array = np.array(own)
        if not array.ndim or array.shape[-1] == 1:
            return np.array(found)
        array[..., series] = found[..., their_series]
        return array

    return cast("T", jax.tree.map(copied, state, other))


def like(fresh: T, state: Iterable[Any]) -> T:
    """Model state of the type of ``fresh`` from its arrays.

    Raises ``ValueError`` if shapes or types differ: the settings have changed since the snapshot.
    """
    kept = list(state)
    for array, new in zip(kept, jax.tree.leaves(fresh), strict=True):
        if (array.shape, array.dtype) != (new.shape, new.dtype):
            raise ValueError(f"array of {array.dtype} {array.shape}, where these settings need {new.dtype} {new.shape}")
    remaining = iter(kept)

    def next_one(_: Any) -> Any:
        return next(remaining)

    return cast("T", jax.tree.map(next_one, fresh))


@contextmanager
def reading(lane: str) -> Generator[None]:
    """Turn errors while a lane restores a state into :class:`DecodeError`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DecodeError(f"not a state of {lane}: {type(error).__name__}: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        items: dict[Any, Any] = cast("Any", value)
        if all(isinstance(key, str) for key in items):
            return {key: _plain(v) for key, v in items.items()}
        pairs = [[_plain(key), _plain(v)] for key, v in items.items()]
        return msgspec.msgpack.Ext(_PAIRS, _encoder.encode(pairs))
    if isinstance(value, list | tuple):
        members: list[Any] = cast("Any", value)
        return [_plain(v) for v in members]
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(cast("Any", value))
        if array.dtype.str not in _KINDS:
            raise ValueError(f"arrays of {array.dtype} do not go into states; one of {sorted(_KINDS)} does")
        head = [array.dtype.str, list(array.shape), array.tobytes()]
        return msgspec.msgpack.Ext(_ARRAY, _encoder.encode(head))
    return value


def _extension(code: int, data: memoryview) -> Any:
    if code == _ARRAY:
        kind, shape, raw = _decoder.decode(data)
        if kind not in _KINDS:
            raise ValueError(f"arrays of {kind!r} are not in any state")
        return np.frombuffer(raw, kind).reshape(shape).copy()
    if code == _PAIRS:
        return {_hashable(key): v for key, v in _decoder.decode(data)}
    raise ValueError(f"extension type {code} is not known")


def _hashable(key: Any) -> Any:
    if not isinstance(key, list):
        return key
    parts: list[Any] = cast("Any", key)
    return tuple(_hashable(k) for k in parts)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ext_hook=_extension)
