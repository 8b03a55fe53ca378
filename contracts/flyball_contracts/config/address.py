"""Addresses in the format of Kafka clients."""

import re

_ADDRESS = re.compile(r"^(\[[0-9a-fA-F:.%]+\]|[^\s:/,\[\]]+):(\d{1,5})$")
_MOST_PORT = 65535


def wrong_address(bootstrap: str) -> str | None:
    """Return the first part of ``bootstrap`` that is not HOST:PORT; ``None`` if all are valid or it is empty."""
    for part in bootstrap.split(",") if bootstrap else ():
        found = _ADDRESS.match(part.strip())
        if found is None or not 0 < int(found[2]) <= _MOST_PORT:
            return part.strip()
    return None
