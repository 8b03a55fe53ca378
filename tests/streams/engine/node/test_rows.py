"""Records from columns, by place."""

import msgspec
import pytest

from flyball_streams.engine.rows import rows


class One(msgspec.Struct):
    """A record of one field."""

    name: str


class Two(msgspec.Struct):
    """A record of two fields."""

    name: str
    size: int


def test_rows_are_records_of_any_number_of_fields() -> None:
    assert list(rows(One, name=["a", "b"])) == [One("a"), One("b")]
    assert list(rows(Two, size=[1, 2], name=["a", "b"])) == [Two("a", 1), Two("b", 2)]
    with pytest.raises(TypeError, match="columns are"):
        rows(One, size=[1])
    with pytest.raises(TypeError, match="columns are"):
        rows(Two, name=["a"])
