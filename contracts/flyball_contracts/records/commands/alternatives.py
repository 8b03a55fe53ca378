"""What a replica of a workload serves on each of the offers of the configuration."""

from flyball_contracts.records.base import Part


class Alternatives(Part, frozen=True, kw_only=True):
    """The offers that a workload can run on, as columns: the rows of ``work`` are those of ``offers``.

    ``work`` is what one replica sustains there, and ``reference`` what it sustains as the proposal counts replicas, in
    one common unit. A replica on a machine that is there serves ``cold_start_s`` after it was placed. ``needed`` are
    the replicas, in the proposal's count, that would do where more run; ``None``: not known, or not fewer.
    """

    offers: tuple[str, ...]
    work: tuple[float, ...]
    reference: float
    cold_start_s: float
    needed: int | None = None
