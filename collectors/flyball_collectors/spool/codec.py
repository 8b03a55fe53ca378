"""Kafka messages as records of the spool."""

import msgspec

from flyball_contracts.codec import Message
from flyball_contracts.errors import DecodeError

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def pack(message: Message) -> bytes:
    """Bytes of a message: topic, key, value, headers and partition as a msgpack array."""
    return _encoder.encode(message)


def unpack(payload: bytes) -> Message:
    """Decode a message; raises :class:`DecodeError` for invalid bytes, as from another version."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"not a spooled message ({len(payload)} bytes): {error}") from error
