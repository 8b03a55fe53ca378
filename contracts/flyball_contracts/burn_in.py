"""The result of a node check, for the platform that runs it: one line of JSON and an exit status.

::

    {"passed": true, "problems": [], "ids": ["GPU-..."], "devices": [{"matmul_flops": 5.1e13, ...}], ...}

Platforms set the expected number of GPUs in the environment variable :data:`GPUS`, and in :data:`RESULT` a file to
which the check also writes the line.
"""

from collections.abc import Iterable

import msgspec

GPUS = "FLYBALL_CHECK_GPUS"
RESULT = "FLYBALL_CHECK_RESULT"


class Device(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Results of one device; ``None``: not measured.

    Rates are the minimum of all rounds, in bytes or operations per second.
    """

    name: str = ""
    matmul_flops: float | None = None
    memory_bytes: int | None = None
    memory_bytes_per_s: float | None = None
    to_device_bytes_per_s: float | None = None
    from_device_bytes_per_s: float | None = None
    peer_bytes_per_s: float | None = None


class BurnIn(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a check; ``platform`` is jax's kind of device: ``gpu`` or ``cpu``.

    ``ids`` are the ids of its GPUs, if known, in an order of their own.
    """

    passed: bool
    problems: tuple[str, ...] = ()
    platform: str = ""
    seconds: float = 0.0
    rounds: int = 0
    ids: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()


def read(output: str) -> BurnIn | None:
    """Decode the result from the last line of a check's output; ``None`` if it has another format."""
    lines = output.strip().splitlines()
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


def summary(output: str) -> str:
    """The result as text, or else the check's output in one line."""
    found = read(output)
    if found is None:
        return " ".join(output.split())
    if found.problems:
        return "; ".join(found.problems)
    parts = [f"{len(found.devices)} {found.platform} devices in {found.seconds:.0f} s, {found.rounds} rounds"]
    for field, unit in _SHOWN:
        known = [value for one in found.devices if (value := getattr(one, field)) is not None]
        if known:
            parts.append(f"at least {min(known):.3g} {unit}")
    return ", ".join(parts)


def unchecked(output: str, wanted: Iterable[str]) -> list[str]:
    """Wanted devices that a burn-in did not check, or does not know; empty if the check is another program.

    Such a program gets as many GPUs as are free, the wanted ones among them.
    """
    found = read(output)
    return [] if found is None else [device for device in wanted if device not in found.ids]
