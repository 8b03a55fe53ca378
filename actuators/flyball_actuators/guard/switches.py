"""The two switches that stop everything: the mode, and the kill switch."""

from flyball_actuators.guard.state import Case, Verdict, refuse


def mode_off(case: Case) -> Verdict | None:
    """Refuse while ``actuator.mode`` is ``off``."""
    if case.config.mode != "off":
        return None
    return refuse("mode_off", "actuator.mode is off; set it to dry_run or live to act")


def kill_switch(case: Case) -> Verdict | None:
    """Refuse while the kill switch is on, as a file or by the topic, or cannot be read."""
    why = case.world.stopped(case.decision.cell)
    return refuse("kill_switch", f"the kill switch is on: {why}") if why else None
