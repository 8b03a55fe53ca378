"""The order of the test files names files that exist, and puts each listed one before all others."""

from tests import order


def test_every_listed_file_and_folder_exists_and_is_listed_once() -> None:
    names = [*order.WAITING, *order.COMPUTING, *order.REST]
    assert [name for name in names if not (order.ROOT / name).exists()] == []
    assert len(set(names)) == len(names)


def test_listed_files_come_first_then_folders_then_the_rest() -> None:
    listed = [order.rank(order.ROOT / name) for name in order.mixed()]
    assert listed == sorted(listed)
    assert set(order.mixed()) == {*order.WAITING, *order.COMPUTING}
    folder = order.rank(order.ROOT / "models" / "forecast" / "test_damped.py")
    assert listed[-1] < folder < order.rank(order.ROOT / "contracts" / "test_ids.py")
