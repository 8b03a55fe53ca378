from hypothesis import given, strategies as st

from flyball_contracts.ids import record_id

parts = st.lists(st.one_of(st.text(max_size=6), st.integers()), max_size=4)


@given(parts, parts)
def test_different_parts_have_different_ids(a: list[str | int], b: list[str | int]) -> None:
    assert (record_id(*a) == record_id(*b)) == ([str(x) for x in a] == [str(x) for x in b])


def test_parts_do_not_run_into_each_other() -> None:
    made = [("ab", "c"), ("a", "bc"), ("abc",), ("", "abc"), ("abc", ""), ("a", "b", "c"), ("\x01\0\0\0a", "bc")]
    assert len({record_id(*x) for x in made}) == len(made)


def test_an_id_is_the_same_on_every_machine_and_day() -> None:
    assert record_id("Forecast", "chat", 7) == record_id("Forecast", "chat", "7") == "7976e98da89ecff429996a58f0517769"
    assert record_id() == record_id()
    assert len(record_id()) == 32
