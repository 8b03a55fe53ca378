"""Which platform of several carries out a decision."""

from tests.actuators.samples import scale

from flyball_actuators.platforms import InventoryPlatform, Platforms, Rejected, Served


def test_patterns_of_workloads_leave_the_others_to_the_next_entry() -> None:
    queue, cluster = InventoryPlatform(lambda cell, workload: {}), InventoryPlatform(lambda cell, workload: {})
    platforms = Platforms(
        [Served(("cell-a",), queue, 1.0, ("train-*",)), Served(("cell-*",), cluster, 1.0)], live=False
    )
    for workload, cell, expected in (
        ("train-1", "cell-a", queue),
        ("chat", "cell-a", cluster),
        ("train-1", "cell-b", cluster),
    ):
        found = platforms.of(scale(workload=workload, cell=cell))
        assert not isinstance(found, Rejected)
        assert found.platform is expected
