"""State to bytes and back, exactly: containers, numbers, text, bytes, arrays, and structs of a known type.

msgpack with extension types for arrays and for dicts whose keys are not text; unlike pickle, reading it
runs no code.
"""

from collections.abc import Iterable
from typing import Any, TypeVar, cast

import jax
import msgspec
import numpy as np

from flyball_contracts.errors import DecodeError

_ARRAY = 1
_PAIRS = 2
S = TypeVar("S", bound=msgspec.Struct)


def pack(state: Any) -> bytes:
    """Bytes of a state made of dicts, lists, tuples, scalars, text, bytes, NumPy and JAX arrays."""
    return _encoder.encode(_plain(state))


def unpack(raw: bytes) -> Any:
    """State from its bytes (tuples come back as lists); raises :class:`DecodeError`."""
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise DecodeError(f"not a lane state ({len(raw)} bytes): {error}") from error


def pack_struct(value: msgspec.Struct) -> bytes:
    """Bytes of a struct without arrays."""
    return _encoder.encode(value)


def unpack_struct(raw: bytes, kind: type[S]) -> S:
    """Struct from its bytes; raises :class:`DecodeError`."""
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise DecodeError(f"not a {kind.__name__}: {error}") from error


def arrays(state: Iterable[Any]) -> list[Any]:
    """Arrays of a model's state, copied to the host, in the order of its fields."""
    return [np.asarray(array) for array in state]


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
        head = [array.dtype.str, list(array.shape), array.tobytes()]
        return msgspec.msgpack.Ext(_ARRAY, _encoder.encode(head))
    return value


def _extension(code: int, data: memoryview) -> Any:
    if code == _ARRAY:
        kind, shape, raw = _decoder.decode(data)
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
