"""A driver's promises, and the observed behaviour, as entries of a table."""

from flyball_actuators.platforms.base import Capabilities
from flyball_cli.platforms.observed import Row

HEADER = (
    "driver", "for", "can", "dry run", "victims", "checkpoint", "load off", "rollback", "gang", "scrub", "node",
    "effect",
)  # fmt: skip


def entries(name: str, can: Capabilities, seen: Row | None, *, observed: bool) -> tuple[str, ...]:
    """One row; with ``observed``, each promise has its observed behaviour."""
    row = seen or Row(driver=name)
    promises = can.promises

    def beside(promise: str, evidence: str) -> str:
        return f"{promise}: {evidence}" if observed and promise != "no" else promise

    verbs = [
        f"{kind} {row.verbs[kind][0]}/{row.verbs[kind][1]}" if kind in row.verbs else kind for kind in sorted(can.kinds)
    ]
    after = "" if row.effect_after_s is None else f", {row.effect_after_s:.1f} s"
    return (
        name,
        "\n".join(f"{subject}s" for subject in sorted(can.about, reverse=True)),
        "\n".join(verbs) or "plans only",
        beside(promises.dry_run, f"{row.planned}"),
        beside("yes" if promises.victims else "no", "{} of {} stops".format(*row.victims)),
        beside("no" if promises.checkpoint == "none" else promises.checkpoint, f"{row.checkpoints} wanted"),
        "no" if promises.load == "none" else promises.load,
        beside("yes" if promises.rollback else "no", "{} of {} failures".format(*row.rollback)),
        beside("yes" if promises.gang else "no", "{} of {} whole".format(*row.gang)),
        "yes" if promises.scrub else "no",
        "yes" if promises.node else "no",
        beside("seen" if can.kinds else "no", "{} of {}".format(*row.effect) + after),
    )
