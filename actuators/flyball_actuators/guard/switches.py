"""The two switches that stop everything: the mode and the kill switch."""

from flyball_actuators.guard.state import Context, Verdict, refuse


def mode_off(context: Context) -> Verdict | None:
    """Refuse while ``actuator.mode`` is ``off``."""
    if context.config.mode != "off":
        return None
    return refuse("mode_off", "actuator.mode is off; set it to dry_run or live to act")


def kill_switch(context: Context) -> Verdict | None:
    """Refuse while the kill switch is on, by file or by topic, or cannot be read."""
    why = context.world.stopped(context.decision.cell)
    return refuse("kill_switch", f"the kill switch is on: {why}") if why else None
