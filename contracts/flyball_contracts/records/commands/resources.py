"""Resources that one replica requests."""

from flyball_contracts.records.base import Part


class Resources(Part, frozen=True, kw_only=True):
    """Requests of one replica; ``None``: left as it is, or not known.

    ``cpu`` is in cores. ``gpu_profile`` is the part of a GPU, such as ``1g.10gb``; the profile with all slices is the
    whole GPU.
    """

    cpu: float | None = None
    memory_bytes: int | None = None
    gpu_profile: str | None = None

    def change(self, before: "Resources | None" = None) -> str:
        """The requested resources and, where known, the previous ones, in a few words."""
        was = before or Resources()
        parts = (
            ("CPU ", _number(was.cpu), _number(self.cpu)),
            ("memory ", _gigabytes(was.memory_bytes), _gigabytes(self.memory_bytes)),
            ("", was.gpu_profile if was.gpu_profile else before and "whole GPU", self.gpu_profile),
        )
        return ", ".join(f"{name}{f'{old} → ' if old else ''}{new}" for name, old, new in parts if new is not None)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"


def _gigabytes(size: int | None) -> str | None:
    return None if size is None else f"{size / 1e9:.3g} GB"
