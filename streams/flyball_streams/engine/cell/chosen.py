"""What an order of a mix of machines changes."""

from collections.abc import Sequence

from flyball_contracts.records import Effect, Portion


def counts_of(mix: Sequence[Portion]) -> dict[str, int]:
    """Replicas by offer."""
    return {part.offer: part.replicas for part in mix}


def effect_of(mix: Sequence[Portion]) -> Effect:
    """What a mix changes in an hour, as far as it is known of all of its parts."""

    def change(name: str) -> float | None:
        values = [getattr(part, name) for part in mix]
        if None in values:
            return None
        return float(sum(v * (part.replicas - part.replicas_before) for v, part in zip(values, mix, strict=True)))

    return Effect(
        cost_usd_per_hour=change("usd_per_hour"),
        carbon_g_per_hour=change("carbon_g_per_hour"),
        power_w=change("power_w"),
        gpus=change("gpus"),
    )
