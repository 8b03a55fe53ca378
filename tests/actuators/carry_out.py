"""A decision carried out on a real platform, as the actuator does it."""

import time

from flyball_actuators.platforms import Handle, Platform, Progress, Rejected, Running
from flyball_contracts.records import AnyDecision

DEADLINE_S = 90.0


def submitted(platform: Platform, decision: AnyDecision, *, dry_run: bool = False) -> Handle | Rejected:
    """Look and submit."""
    observed = platform.observe(decision)
    assert not isinstance(observed, Rejected), observed
    return platform.submit(decision, observed, dry_run=dry_run)


def ended(platform: Platform, handle: Handle) -> Progress:
    """The last answer on an operation."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        progress = platform.poll(handle)
        if not isinstance(progress, Running):
            return progress
        assert time.monotonic() < deadline, f"waited in vain: {progress.answer}"
        time.sleep(0.1)


def carried_out(platform: Platform, decision: AnyDecision) -> Progress:
    """Look, submit, and wait for the effect."""
    handle = submitted(platform, decision)
    assert isinstance(handle, Handle), handle
    return ended(platform, handle)
