"""Resources that one replica requests."""

from flyball_contracts.records.base import Part


class Resources(Part, frozen=True, kw_only=True):
    """Requests of one replica; ``None``: left as it is, or not known.

    ``cpu`` is in cores. ``gpu_profile`` is the part of a GPU, such as ``1g.10gb``; that with all slices is the whole.
    """

    cpu: float | None = None
    memory_bytes: int | None = None
    gpu_profile: str | None = None
