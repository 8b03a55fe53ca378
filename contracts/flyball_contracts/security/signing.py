"""Signatures of decisions: Ed25519 (RFC 8032) over the topic's name, a zero byte and the message's value.

The header ``flyball-signature`` is ``KEY:SIGNATURE``: the first 16 hex digits of the SHA-256 of the raw public key, and
the base64 of the signature. The same message always has the same signature. Importing this needs `cryptography`.
"""

import base64
import binascii
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from flyball_contracts.cloudevents import Header, header
from flyball_contracts.errors import ConfigError, DecodeError

HEADER = "flyball-signature"
_BYTES = 32


class Unsigned(DecodeError):
    """A message without a valid signature of a known key; its sender is unknown."""


class Signer:
    """Signs messages with the private key in a PEM file that only its owner, and perhaps its group, may read.

    Raises :class:`ConfigError` if the file cannot be used; ``where`` names the setting in it.
    """

    def __init__(self, path: Path, where: str = "worker.signing_key") -> None:
        try:
            mode = path.stat().st_mode
            text = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{where}: {path}: {error.strerror}; make one: flyball keys new {path}") from error
        if stat.S_IMODE(mode) & 0o027:
            raise ConfigError(f"{where}: {path} may be read, or changed, by others; chmod 600 {path}")
        try:
            key = load_pem_private_key(text, None)
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{where}: {path} is no PEM private key without a password; make one: flyball keys new {path}"
            ) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(f"{where}: {path} has a key of another kind than Ed25519; make one: flyball keys new")
        self._key = key
        self.public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.id = key_id(self.public)

    def header(self, topic: str, value: bytes) -> Header:
        """The header that signs a message."""
        signature = base64.b64encode(self._key.sign(_signed(topic, value)))
        return HEADER, self.id.encode() + b":" + signature


class Keyring:
    """Public keys, by their ids; ``publics`` has the base64 of each by its name in errors.

    Raises :class:`ConfigError` for an invalid key, and for a duplicate.
    """

    def __init__(self, publics: Mapping[str, str]) -> None:
        self._keys: dict[str, Ed25519PublicKey] = {}
        self.ids: list[str] = []
        for where, text in publics.items():
            try:
                raw = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                raw = b""
            if len(raw) != _BYTES:
                raise ConfigError(f"{where}: is not the base64 of {_BYTES} bytes; print it: flyball keys show FILE")
            name = key_id(raw)
            if name in self._keys:
                raise ConfigError(f"{where}: key {name} is there twice; give each key all it may do in one place")
            self._keys[name] = Ed25519PublicKey.from_public_bytes(raw)
            self.ids.append(name)

    def signer(self, topic: str, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> str:
        """Id of the key that signed a message; raises :class:`Unsigned` if none of these did."""
        text = header(headers, HEADER)
        if text is None:
            raise Unsigned(f"it has no header {HEADER}; set worker.signing_key where it is sent from")
        name, _, encoded = text.partition(":")
        key = self._keys.get(name)
        if key is None:
            raise Unsigned(f"key {name[:16]!r} is none of actuator.keys; add it, or end whoever signs with it")
        try:
            key.verify(base64.b64decode(encoded, validate=True), _signed(topic, value or b""))
        except (InvalidSignature, binascii.Error, ValueError) as error:
            raise Unsigned(f"its signature by key {name} is not of this message; it was changed on the way") from error
        return name


def new_key(path: Path) -> Signer:
    """Make a key, and write it into a new file; :class:`ConfigError` if it cannot be written."""
    text = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}; name a file that does not exist, in a folder that does"
        ) from error
    try:
        with open(descriptor, "wb") as file:
            file.write(text)
    except OSError as error:
        path.unlink(missing_ok=True)  # a part of a key is useless, and would be in the way of the next try
        raise ConfigError(f"{path}: {error.strerror}; make room, and run the command again") from error
    return Signer(path, str(path))


def key_id(public: bytes) -> str:
    """Id of a raw public key."""
    return hashlib.sha256(public).hexdigest()[:16]


def _signed(topic: str, value: bytes) -> bytes:
    return topic.encode() + b"\0" + value
