"""Google Cloud: the spot price of a machine, as the sum of its parts' in a region."""

from collections.abc import Mapping

from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.curve import Shape
from flyball_collectors.feeds.level import Level
from flyball_collectors.feeds.spot.gcp_catalogue import Catalogue, Part
from flyball_collectors.feeds.spot.gcp_machines import MACHINES
from flyball_contracts.config import GcpSpotPriceSettings
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import Signal


class GcpSpotPrice:
    """The spot price of a type of machine; see :class:`flyball_collectors.feeds.base.Feed`.

    Raises :class:`ConfigError`, which names ``key``, for a type whose parts are not known and not in the settings.
    """

    def __init__(self, settings: GcpSpotPriceSettings, catalogue: Catalogue, key: str) -> None:
        parts = settings.parts or MACHINES.get(settings.instance_type)
        if not parts:
            series = settings.instance_type.partition("-")[0]
            known = [name for name in MACHINES if name.startswith(f"{series}-")] or MACHINES
            raise ConfigError(
                f"{key}.instance_type: the parts of {settings.instance_type!r} are not known; name them in parts, "
                f"or choose one of {', '.join(known)}"
            )
        self.name = f"gcp_spot_price/{settings.zone}"
        self.left_out = 0
        self._settings = settings
        self._parts = parts
        self._catalogue = catalogue
        self._level = Level(Shape(settings.zone, "gcp_spot_price", "spot_price", forecast=False))

    def fetch(self, now_ns: int) -> list[Signal]:
        """One curve of the price in force; raises :class:`FeedError`."""
        where = f"{self._catalogue.where} of {self._settings.instance_type} in {self._settings.region}"
        prices = self._catalogue.prices(now_ns)
        price = sum(amount * self._price(names, prices, where) for names, amount in self._parts.items())
        return [self._level.curve(price, now_ns, where)]

    def _price(self, names: str, prices: Mapping[Part, float], where: str) -> float:
        for name in names.split("|"):
            price = prices.get(Part(self._settings.region, name.strip()))
            if price is not None:
                return price
        # A price without one of its parts would be too low by an unknown amount.
        raise FeedError(f"{where}: no spot price of {names!r}; check region and instance_type, or parts", lasting=True)
