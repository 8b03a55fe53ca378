"""Why a deferrable job waits, starts or goes on: sentences and evidence of its proposals."""

from flyball_contracts.records import Evidence, Plan
from flyball_streams.engine.workload.timing.schedule import Deferrable, mean_cost, mean_price


def why_wait(plan: Plan, here: int) -> str:
    """Why a job pauses in a slot of its plan."""
    now, later = list[str](), list[str]()
    if _names_carbon(plan, here):
        now.append(f"carbon is {_carbon(plan.cost[here])}")
        later.append(_carbon(mean_cost(plan)))
    if plan.price:
        now.append(f"power costs {_price(plan.price[here])}")
        later.append(_price(mean_price(plan)))
    return (
        f"{' and '.join(now)} in {plan.zone} now and {' and '.join(later)} in the slots planned before the deadline: "
        f"waiting {_saves(plan, here)}, restarts included"
    )


def why_now(job: Deferrable, plan: Plan, here: int, *, urgent: bool) -> str:
    """Why a job starts in a slot of its plan."""
    known = [_carbon(plan.cost[here])] if _names_carbon(plan, here) else []
    at = f"at {' and '.join([*known, *([_price(plan.price[here])] if plan.price else [])])} in {plan.zone}"
    if not plan.feasible:
        return f"this job cannot end by its deadline any more and runs at once, {at}"
    if urgent:
        return (
            f"this job must start now, {at}, to end by its deadline: {job.remaining_s / 60:.0f} min of work, "
            f"{job.restart_s / 60:.0f} min to start and a reserve of {job.margin_s / 60:.0f} min"
        )
    return f"the plan runs this job now, {at}, to end before its deadline"


def evidence(plan: Plan, here: int, *, waits: bool) -> tuple[Evidence, ...]:
    """Carbon and price of a slot, beside those of the planned slots for a job that ``waits``, and what is saved."""
    found = list[Evidence]()
    if _names_carbon(plan, here):
        later_g = mean_cost(plan) if waits else plan.cost[here]
        found.append(
            Evidence(name="carbon_intensity", value=plan.cost[here], expected=later_g, unit="g/kWh", record=plan.id)
        )
        found.append(Evidence(name="saving", value=plan.saving, record=plan.id))
    if plan.price:
        later = mean_price(plan) if waits else plan.price[here]
        found.append(
            Evidence(name="electricity_price", value=plan.price[here], expected=later, unit="USD/kWh", record=plan.id)
        )
        found.append(Evidence(name="price_saving", value=plan.price_saving, record=plan.id))
    return tuple(found)


def _saves(plan: Plan, here: int) -> str:
    carbon, price = f"{abs(plan.saving):.0%}", f"{abs(plan.price_saving):.0%}"
    if not plan.price or not _names_carbon(plan, here):
        return f"saves {price if plan.price else carbon}"
    if plan.saving < 0:
        return f"saves {price} of the price and emits {carbon} more carbon"
    if plan.price_saving < 0:
        return f"saves {carbon} of the carbon and costs {price} more"
    return f"saves {carbon} of the carbon and {price} of the price"


def _names_carbon(plan: Plan, here: int) -> bool:
    return plan.cost[here] > 0 or not plan.price  # 0: unknown


def _carbon(grams: float) -> str:
    return f"{grams:.0f} g/kWh"


def _price(usd: float) -> str:
    return f"{usd:.3f} USD/kWh"
