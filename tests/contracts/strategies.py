"""Hypothesis strategies and fixed samples, both built from the record types themselves."""

from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect as mi

from flyball_contracts.codec import RECORD_TYPES
from flyball_contracts.records import Record, Snapshot, Tick

INT64 = 2**63 - 1


def strategy(kind: type) -> st.SearchStrategy[Any]:
    """Any value of a type that may travel: finite floats, 64-bit integers."""
    return _strategy(mi.type_info(kind))


def _strategy(info: mi.Type) -> st.SearchStrategy[Any]:
    match info:
        case mi.Metadata():
            return _strategy(info.type)
        case mi.NoneType():
            return st.none()
        case mi.BoolType():
            return st.booleans()
        case mi.IntType():
            return st.integers(-INT64 - 1 if info.ge is None else info.ge, INT64 if info.le is None else info.le)
        case mi.FloatType():
            low = info.ge if info.ge is not None else info.gt
            return st.floats(
                low,
                info.le,
                exclude_min=info.gt is not None,
                allow_nan=False,
                allow_infinity=False,
            )
        case mi.StrType():
            return st.text(max_size=8)
        case mi.BytesType():
            return st.binary(max_size=16)
        case mi.LiteralType():
            return st.sampled_from(info.values)
        case mi.UnionType():
            return st.one_of([_strategy(member) for member in info.types])
        case mi.VarTupleType():
            return st.lists(_strategy(info.item_type), max_size=3).map(tuple)
        case mi.DictType():
            return st.dictionaries(_strategy(info.key_type), _strategy(info.value_type), max_size=3)
        case mi.StructType():
            if info.cls is Tick:
                return _ticks()
            return st.builds(info.cls, **{field.name: _strategy(field.type) for field in info.fields})
        case _:
            raise NotImplementedError(f"no strategy for {info}")


def _ticks() -> st.SearchStrategy[Tick]:
    """Ticks that end before the year 2262."""
    return st.integers(1, INT64).flatmap(
        lambda period: st.builds(
            Tick,
            index=st.integers(0, INT64 // period - 1),
            period_ns=st.just(period),
            closed_by=st.text(max_size=8),
            missing=st.lists(st.text(max_size=8), max_size=3).map(tuple),
            late=st.integers(-INT64 - 1, INT64),
        )
    )


records: st.SearchStrategy[Record] = st.one_of([strategy(kind) for kind in RECORD_TYPES.values()])
snapshots: st.SearchStrategy[Snapshot] = strategy(Snapshot)


def sample(kind: type, *, full: bool) -> Any:
    """The same value of a type at each call: every field set, or only those without a default."""
    return _sample(mi.type_info(kind), "value", iter(range(1, 10_000)), full)


def _sample(info: mi.Type, name: str, numbers: Iterator[int], full: bool) -> Any:
    match info:
        case mi.Metadata():
            return _sample(info.type, name, numbers, full)
        case mi.BoolType():
            return True
        case mi.IntType() if name.endswith("_ns") and name != "period_ns":
            return 1_800_000_000_000_000_000 + next(numbers)
        case mi.IntType():
            return next(numbers)
        case mi.FloatType():
            number = next(numbers) + 0.1
            return number if info.le is None or number <= info.le else info.le * number / 10_000
        case mi.StrType():
            return f"{name}-{next(numbers)}"
        case mi.BytesType():
            return bytes([next(numbers), 0, 255])
        case mi.LiteralType():
            return info.values[-1]
        case mi.UnionType():
            return _sample(next(t for t in info.types if not isinstance(t, mi.NoneType)), name, numbers, full)
        case mi.VarTupleType():
            return (_sample(info.item_type, name, numbers, full), _sample(info.item_type, name, numbers, full))
        case mi.DictType():
            return {f"{name}/0": _sample(info.value_type, name, numbers, full)}
        case mi.StructType():
            fields = [field for field in info.fields if full or field.required]
            return info.cls(**{field.name: _sample(field.type, field.name, numbers, full) for field in fields})
        case _:
            raise NotImplementedError(f"no sample of {info}")


def samples() -> dict[str, tuple[Record, Record]]:
    """A full and a minimal sample of each record type."""
    return {name: (sample(kind, full=True), sample(kind, full=False)) for name, kind in RECORD_TYPES.items()}


def is_record(value: object) -> bool:
    """Whether a decoded message is a JSON record."""
    return isinstance(value, msgspec.Struct) and type(value).__name__ in RECORD_TYPES
