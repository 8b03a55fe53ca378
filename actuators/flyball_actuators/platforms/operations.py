"""Names of operations in outcomes: URL-encoded fields, from which any process can continue the operation."""

from typing import TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec

from flyball_actuators.platforms.base import PlatformError

NamedT = TypeVar("NamedT", bound="NamedOperation")


class NamedOperation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the operations that outcomes name; fields are texts and numbers."""

    def encode(self) -> str:
        """As text, for an outcome."""
        return urlencode(msgspec.to_builtins(self))


def decode(kind: type[NamedT], text: str, owner: str) -> NamedT:
    """Parse the operation of an outcome; :class:`PlatformError` for one that is not the ``owner``'s."""
    try:
        return msgspec.convert(dict(parse_qsl(text, keep_blank_values=True)), kind, strict=False)
    except msgspec.ValidationError as error:
        raise PlatformError(f"operation {text!r} is none of {owner}: {error}") from error
