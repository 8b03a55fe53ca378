"""`bench/capacity.py` on one short run: every method has its row, and those that learned know more."""

from bench import capacity

from flyball_models.capacity import gpus, hybrid


def test_all_methods_stand_side_by_side() -> None:
    rows = capacity.summary(capacity.run(0, capacity.synthetic(2400, 1), 1))
    assert [row["method"] for row in rows] == list(hybrid.NAMES)
    errors = {row["method"]: row["after saturation"] for row in rows}
    assert errors["online"] < 0.12
    assert errors["hybrid"] < errors["spec"]
    assert all(row["within 2"] > 0.5 for row in rows)


def test_a_server_made_from_an_architecture_does_what_the_roofline_says() -> None:
    for name, model, chip_name, count in capacity.MODELS:
        chip = gpus.find(chip_name)
        assert chip is not None
        server, roofline = capacity.server_of(model, chip, count, 1.0)
        assert abs(server.capacity / roofline - 1.0) < 0.01, name
