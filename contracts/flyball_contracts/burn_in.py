"""What a check of a node tells the platform that runs it: one line of JSON, and its exit status.

::

    {"passed": true, "problems": [], "ids": ["GPU-..."], "devices": [{"matmul_flops": 5.1e13, ...}], ...}

Platforms say how many GPUs there are to be in the variable :data:`GPUS` of its environment, and with :data:`RESULT`
a file that it is to write the line to as well.
"""

from collections.abc import Iterable

import msgspec

GPUS = "FLYBALL_CHECK_GPUS"
RESULT = "FLYBALL_CHECK_RESULT"


class Device(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device; ``None``: not measured. Rates are the least of all rounds, in bytes or operations per second."""

    name: str = ""
    matmul_flops: float | None = None
    memory_bytes: int | None = None
    memory_bytes_per_s: float | None = None
    to_device_bytes_per_s: float | None = None
    from_device_bytes_per_s: float | None = None
    peer_bytes_per_s: float | None = None


class BurnIn(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found; ``platform`` is what jax calls the kind of device: ``gpu`` or ``cpu``.

    ``ids`` are those of its GPUs where they are known, in an order of their own.
    """

    passed: bool
    problems: tuple[str, ...] = ()
    platform: str = ""
    seconds: float = 0.0
    rounds: int = 0
    ids: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()


def read(said: str) -> BurnIn | None:
    """The result in the last line of what a check said; ``None`` for a check that speaks another language."""
    lines = said.strip().splitlines()
    try:
        return msgspec.json.decode(lines[-1], type=BurnIn) if lines else None
    except msgspec.DecodeError:
        return None


_SHOWN = (
    ("matmul_flops", "FLOP/s"),
    ("memory_bytes_per_s", "B/s of memory"),
    ("to_device_bytes_per_s", "B/s to the device"),
    ("peer_bytes_per_s", "B/s between devices"),
)


def figures(said: str) -> str:
    """A result in words, or else what the check said."""
    found = read(said)
    if found is None:
        return " ".join(said.split())
    if found.problems:
        return "; ".join(found.problems)
    parts = [f"{len(found.devices)} {found.platform} devices in {found.seconds:.0f} s, {found.rounds} rounds"]
    for field, unit in _SHOWN:
        known = [value for one in found.devices if (value := getattr(one, field)) is not None]
        if known:
            parts.append(f"at least {min(known):.3g} {unit}")
    return ", ".join(parts)


def missed(said: str, wanted: Iterable[str]) -> list[str]:
    """Devices that were to be checked and were not, as far as the check tells which ones it had."""
    found = read(said)
    ids = found.ids if found is not None else ()
    return [device for device in wanted if ids and device not in ids]
