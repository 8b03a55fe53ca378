"""Many records of one kind at once, from columns."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from operator import itemgetter
from typing import Any, TypeVar, cast

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


def rows(kind: type[S], /, **columns: Iterable[Any]) -> Iterator[S]:
    """Yield a record for each row of the columns, which are all fields of ``kind``; the shortest column ends it.

    Records are made from positional arguments: for many fields, that is several times as fast as keywords. Raises
    ``TypeError`` when a field has no column or a column no field.
    """
    fields = kind.__struct_fields__
    try:
        in_order = _in_order(fields)(columns)
    except KeyError:
        in_order = ()
    if len(columns) != len(in_order):
        raise TypeError(f"{kind.__name__}: columns are {sorted(columns)}, fields are {sorted(fields)}")
    return map(kind, *in_order)


@cache
def _in_order(fields: tuple[str, ...]) -> Callable[[dict[str, Iterable[Any]]], tuple[Iterable[Any], ...]]:
    if len(fields) < 2:  # with one name, itemgetter returns the item itself
        return lambda columns: tuple(columns[field] for field in fields)
    return cast("Callable[[dict[str, Iterable[Any]]], tuple[Iterable[Any], ...]]", itemgetter(*fields))


def known(value: float) -> float | None:
    """A value for a record; ``None`` where it is not finite."""
    return float(value) if math.isfinite(value) else None
