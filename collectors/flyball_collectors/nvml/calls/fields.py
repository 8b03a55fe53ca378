"""NVML's values by field id, many of them in one call into one buffer."""

from collections.abc import Sequence
from ctypes import byref
from struct import Struct
from typing import NamedTuple

import numpy as np

from flyball_collectors.nvml.calls.abi import FieldValue
from flyball_collectors.nvml.calls.gate import LOST, NEVER, DeviceLost, Gate
from flyball_collectors.nvml.calls.library import INVALID_ARGUMENT, SUCCESS
from flyball_collectors.nvml.calls.values import UINT, ULONG_LONG, WIDE, number_in

ALL_LINKS = 0xFFFFFFFF
ANSWER = Struct("<24xiiQ")  # type, return code and value of a FieldValue
ANSWERS = np.dtype(
    {
        "names": ["kind", "code", "wide", "low"],
        "formats": ["<i4", "<i4", "<u8", "<u4"],
        "offsets": [24, 28, 32, 32],
        "itemsize": 40,
    }
)
_MANY = 40  # fields from which on arrays are cheaper than a loop


class Field(NamedTuple):
    """A field id of nvml.h, its column, its unit's value, and its scope (a link, or all).

    A ``wide`` counter is only used in 64 bits: in 32, bytes wrap more than once between two reads. For one that
    ``wraps``, the lower bits are stored in :attr:`FieldBatch.wrapped`.
    """

    id: int
    column: int
    scale: float = 1.0
    scope: int = 0
    wide: bool = False
    wraps: bool = False


class FieldBatch:
    """Reads some fields of one device; a missing field is requested once.

    ``wrapped`` has, by column, the lower 32 bits of counters for which the last read had no more.
    """

    def __init__(self, gate: Gate, fields: Sequence[Field]) -> None:
        self._gate = gate
        self._plain: _Plain | None = None
        self._buffer = memoryview(b"")
        self.wrapped: dict[int, int] = {}
        self._set(fields)

    def has(self, id: int) -> bool:
        """Whether the device has a field, as far as is known."""
        return any(field.id == id for field in self._fields)

    def read(self, row: list[float]) -> None:
        """Put the values into their columns; fields of one column are added up."""
        if not self._fields or not self._gate.call("nvmlDeviceGetFieldValues", len(self._fields), self._at):
            return
        if self._plain is None or not self._plain.read(row):
            self._read_each(row)

    def _read_each(self, row: list[float]) -> None:
        fields = self._fields
        absent: list[Field] = []
        for (kind, code, bits), field in zip(ANSWER.iter_unpack(self._buffer), fields, strict=True):
            if code == SUCCESS:
                number = float(bits) if kind == ULONG_LONG else number_in(kind, bits)
                if field.wraps and kind == UINT:
                    self.wrapped[field.column] = bits & 0xFFFFFFFF
                    continue
                if number is None or (field.wide and kind not in WIDE):
                    absent.append(field)
                    continue
                before = row[field.column]
                number *= field.scale
                row[field.column] = number if before != before else before + number
            elif code in LOST:
                raise DeviceLost(f"field {field.id}: {self._gate.library.text_of(code)}")
            elif code in NEVER or code == INVALID_ARGUMENT:  # returned by drivers older than the field
                absent.append(field)
        if absent:
            self._set([field for field in fields if field not in absent])
        self._plain = _Plain(self._buffer, self._fields) if len(self._fields) >= _MANY and not self.wrapped else None

    def _set(self, fields: Sequence[Field]) -> None:
        self._fields = tuple(fields)
        self._plain = None
        values = (FieldValue * len(fields))()
        for value, field in zip(values, fields, strict=True):
            value.id, value.scope = field.id, field.scope
        self._at = byref(values)
        self._buffer = memoryview(values).cast("B")


class _Plain:
    """Reads many values at once as long as all are present and keep their types."""

    def __init__(self, buffer: memoryview, fields: Sequence[Field]) -> None:
        answers = np.frombuffer(buffer, ANSWERS)
        self._kinds, self._codes = answers["kind"], answers["code"]
        self._wide, self._low = answers["wide"], answers["low"]
        self._expected = self._kinds.copy()
        self._narrow = np.flatnonzero(self._expected == UINT)
        self._usual = bool(np.isin(self._expected, (UINT, ULONG_LONG)).all())
        self._scales = np.array([field.scale for field in fields])
        columns, places = np.unique([field.column for field in fields], return_inverse=True)
        self._columns: list[int] = columns.tolist()
        self._places = places

    def read(self, row: list[float]) -> bool:
        """Put the values into their columns; return whether that was possible."""
        if not self._usual or self._codes.any() or (self._kinds != self._expected).any():
            return False
        numbers = self._wide.astype(np.float64)
        numbers[self._narrow] = self._low[self._narrow]
        sums: list[float] = np.bincount(self._places, numbers * self._scales).tolist()
        for column, value in zip(self._columns, sums, strict=True):
            row[column] = value
        return True
