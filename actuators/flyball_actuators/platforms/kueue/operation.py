"""The name of an operation on a queued job."""

from urllib.parse import parse_qsl, urlencode

import msgspec

from flyball_actuators.platforms import operations
from flyball_actuators.platforms.kubernetes.kinds import Object
from flyball_actuators.platforms.kubernetes.operation import Operation, operation_of
from flyball_actuators.platforms.kubernetes.targets import Target
from flyball_contracts.records import Preempt, Scale

GIVE_UP_NS = 900 * 1_000_000_000


class Queued(Operation, frozen=True, kw_only=True, omit_defaults=True):
    """The submission of one decision on a queued job.

    ``place`` are the required node labels, as a query string. ``woke``: the decision activated the job, which is
    deactivated again if the operation is given up after ``until_ns``. ``moves``: the job ran elsewhere.
    """

    place: str = ""
    woke: bool = False
    moves: bool = False

    @property
    def selector(self) -> dict[str, str]:
        """The required node labels."""
        return dict(parse_qsl(self.place))


def queued(
    decision: Scale | Preempt, target: Target, obj: Object, place: dict[str, str], now_ns: int, *, activated: bool
) -> Queued:
    """The operation of a decision on a job as it was read."""
    number, until_ns = decision.replicas, now_ns + GIVE_UP_NS
    count = operation_of("count", decision, target, obj, replicas=number, frees=number == 0, until_ns=until_ns)
    return Queued(**msgspec.structs.asdict(count), place=urlencode(place), woke=activated)


def decode(text: str) -> Queued:
    """Parse the operation of an outcome; :class:`PlatformError` for another platform's."""
    return operations.decode(Queued, text, "platform kueue")
