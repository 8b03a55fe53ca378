"""AWS: the spot instance advisor's file, which says how often machines of a type were taken back in the last month.

See https://aws.amazon.com/ec2/spot/instance-advisor/. The file gives a band of the share that was interrupted: below 5
%, 5 to 10, 10 to 15, 15 to 20, or above 20 %. The middle of the band (25 % for the last, which is open) is taken as the
probability per month and converted to a rate per hour. It is coarse, hence marked as estimated; losses of own machines
are better evidence.
"""

import msgspec

from flyball_collectors.feeds.answers import decode_json
from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.client import Client
from flyball_collectors.feeds.curve import Shape
from flyball_collectors.feeds.level import Level
from flyball_contracts.config import AwsSpotAdvisorSettings
from flyball_contracts.records import Signal

PATH = "/spot-advisor-data.json"
SYSTEM = "Linux"
MONTH_HOURS = 730.0
OPEN_BAND = 0.25


class _Range(msgspec.Struct):
    index: int
    max: float


class _Row(msgspec.Struct):
    r: int


class _Answer(msgspec.Struct):
    ranges: list[_Range]
    spot_advisor: dict[str, dict[str, dict[str, _Row]]]


class AwsSpotAdvisor:
    """The risk of a type of machine; see :class:`flyball_collectors.feeds.base.Feed`."""

    def __init__(self, settings: AwsSpotAdvisorSettings, client: Client) -> None:
        self.name = f"aws_spot_advisor/{settings.zone}"
        self.left_out = 0
        self._settings = settings
        self._level = Level(Shape(settings.zone, "aws_spot_advisor", "spot_risk"))
        self._client = client

    def fetch(self, now_ns: int) -> list[Signal]:
        """One curve of the risk per hour; raises :class:`FeedError`."""
        where = self._client.where(PATH)
        answer = decode_json(self._client.get(PATH, {}, {}, now_ns), _Answer, where)
        settings = self._settings
        regions = answer.spot_advisor
        if settings.region not in regions:
            raise FeedError(f"{where}: $.spot_advisor: no region {settings.region!r}; check region", lasting=True)
        row = regions[settings.region].get(SYSTEM, {}).get(settings.instance_type)
        if row is None:
            text = f"no {settings.instance_type!r} in {settings.region}; check instance_type"
            raise FeedError(f"{where}: $.spot_advisor: {text}", lasting=True)
        share = _middle(answer.ranges, row.r, where)
        risk = 1.0 - (1.0 - share) ** (1.0 / MONTH_HOURS)
        return [msgspec.structs.replace(self._level.curve(risk, now_ns, where), estimated=True)]


def _middle(ranges: list[_Range], index: int, where: str) -> float:
    """Middle of a band, 0..1; the bands are named by their upper ends, in percent."""
    ends = {one.index: one.max for one in ranges}
    if index not in ends or not 0 < ends[index] <= 100 or (index > 0 and index - 1 not in ends):
        raise FeedError(f"{where}: $.ranges: no band {index}; the provider's format is not the one known", lasting=True)
    if ends[index] == 100:
        return OPEN_BAND
    return (ends.get(index - 1, 0.0) + ends[index]) / 200.0
