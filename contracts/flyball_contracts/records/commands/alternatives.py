"""Work of a workload's replica on each configured offer."""

from typing import Annotated

import msgspec

from flyball_contracts.records.base import Part

Work = Annotated[float, msgspec.Meta(ge=1e-30, le=1e30)]


class Alternatives(Part, frozen=True, kw_only=True):
    """The offers that a workload can run on.

    ``work`` is what one replica sustains on each, and ``reference`` what it sustains as the proposal counts replicas,
    in one common unit. A replica on an existing machine serves ``cold_start_s`` after it was placed. ``needed`` are the
    replicas, in the proposal's count, that suffice although more run; ``None``: unknown, or not fewer.
    """

    work: dict[str, Work]
    reference: Work
    cold_start_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    needed: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
