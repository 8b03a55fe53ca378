"""Google Cloud: the spot price of a machine, as the sum of its parts' in a region."""

from collections.abc import Mapping

from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.curve import Shape
from flyball_collectors.feeds.level import Level
from flyball_collectors.feeds.spot.gcp_catalogue import Catalogue, Part
from flyball_contracts.config import GcpSpotPriceSettings
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import Signal

_Parts = Mapping[str, float]
_DISK = "SSD backed Local Storage"


def _machine(series: str, gpu: str, gpus: int, cpus: int, memory_gib: int, disk_gib: int = 0) -> _Parts:
    parts = {f"{series} Instance Core": cpus, f"{series} Instance Ram": memory_gib, gpu: gpus}
    return parts | ({_DISK: disk_gib} if disk_gib else {})


_A100, _A100_80 = "Nvidia Tesla A100 GPU", "Nvidia Tesla A100 80GB GPU"
_H100 = "Nvidia H100 80GB GPU"
_MEGA = "Nvidia H100 80GB Mega GPU | Nvidia H100 Mega 80GB GPU | Nvidia H100 80GB Plus GPU"
_L4 = "Nvidia L4 GPU"

MACHINES: Mapping[str, _Parts] = {
    **{f"a2-highgpu-{n}g": _machine("A2", _A100, n, 12 * n, 85 * n) for n in (1, 2, 4, 8)},
    "a2-megagpu-16g": _machine("A2", _A100, 16, 96, 1360),
    **{f"a2-ultragpu-{n}g": _machine("A2", _A100_80, n, 12 * n, 170 * n, 375 * n) for n in (1, 2, 4, 8)},
    **{f"a3-highgpu-{n}g": _machine("A3", _H100, n, 26 * n, 234 * n, 750 * n) for n in (1, 2, 4, 8)},
    "a3-megagpu-8g": _machine("A3Plus", _MEGA, 8, 208, 1872, 6000),
    "a4-highgpu-8g": {"A4 Nvidia B200 (1 gpu slice)": 8},
    **{f"g2-standard-{n}": _machine("G2", _L4, 1, n, 4 * n) for n in (4, 8, 12, 16, 32)},
    **{f"g2-standard-{24 * n}": _machine("G2", _L4, 2 * n, 24 * n, 96 * n) for n in (1, 2, 4)},
}
"""Parts of the GPU machines, as the catalogue has prices of parts only.

A part is named as in the catalogue, without what follows ``attached to`` or ``running in`` and without ``Spot
Preemptible``; ``A | B`` are two names of one part, of which a region has one. Amounts (virtual CPUs, GiB of memory,
GPUs, GiB of local disk) are those of https://cloud.google.com/compute/docs/accelerator-optimized-machines.
"""


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
