"""Kubernetes resource quantities."""

from decimal import Decimal

_SUFFIXES = (
    {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(1000)}
    | {letter: Decimal(1000) ** (i + 2) for i, letter in enumerate("MGTPE")}
    | {f"{letter}i": Decimal(1024) ** (i + 1) for i, letter in enumerate("KMGTPE")}
)


def amount(text: str | None) -> float | None:
    """Parse a quantity: ``250m`` is 0.25, ``2Gi`` is 2147483648; ``None`` stays ``None``."""
    if text is None:
        return None
    number = text.rstrip("numkMGTPEi")
    return float(Decimal(number) * _SUFFIXES[text[len(number) :]])


def quantity(value: float) -> str:
    """Format a number as a quantity, rounded to a thousandth."""
    whole = round(value)
    return str(whole) if abs(value - whole) < 5e-4 else f"{round(value * 1000)}m"
