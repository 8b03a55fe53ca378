"""What NVML tells through field ids, all of them in one call."""

from typing import Any, NamedTuple

from flyball_collectors.nvml.gate import LOST, NEVER, SUCCESS, DeviceLost, Gate
from flyball_collectors.nvml.values import WIDE, number_in

ALL_LINKS = 0xFFFFFFFF


class Field(NamedTuple):
    """A field id of nvml.h, the metric it is, what one unit is worth, and its scope (a link, or all).

    A ``wide`` counter is only believed in 64 bits: in 32, bytes wrap more than once between two reads.
    """

    id: int
    key: str
    scale: float = 1.0
    scope: int = 0
    wide: bool = False


_THROTTLE = "nvidia.gpu.throttle.time{{reason={}}}"
_LINK_ERRORS = "nvidia.gpu.nvlink.errors"
FIELDS: tuple[Field, ...] = (
    Field(3, "hw.errors{type=corrected}"),
    Field(4, "hw.errors{type=uncorrected}"),
    Field(38, _LINK_ERRORS),  # CRC of flow control
    Field(45, _LINK_ERRORS),  # CRC of data
    Field(52, _LINK_ERRORS),  # replays
    Field(59, _LINK_ERRORS),  # recoveries
    Field(160, _LINK_ERRORS),  # ECC of data
    Field(74, _THROTTLE.format("power"), 1e-9),
    Field(75, _THROTTLE.format("thermal"), 1e-9),
    Field(82, "hw.temperature{sensor=memory}"),
    Field(83, "hw.energy", 1e-3),
    Field(94, "nvidia.gpu.pcie.replays"),
    Field(138, "nvidia.gpu.nvlink.io{direction=transmit}", 1024, ALL_LINKS, wide=True),
    Field(139, "nvidia.gpu.nvlink.io{direction=receive}", 1024, ALL_LINKS, wide=True),
    Field(144, "nvidia.gpu.memory.row_remap.pending"),
    Field(185, "nvidia.gpu.power.average", 1e-3),
    Field(186, "hw.power", 1e-3),
    Field(197, "hw.gpu.io{direction=transmit}", wide=True),
    Field(198, "hw.gpu.io{direction=receive}", wide=True),
    Field(230, "nvidia.gpu.recovery_action"),
)


class FieldReader:
    """Reads the fields of one device; a field that it does not have is asked for once."""

    def __init__(self) -> None:
        self._fields = FIELDS

    def read(self, gate: Gate) -> dict[str, float]:
        """Values by metric key; fields of one key are added up."""
        if not self._fields:
            return {}
        answers: Any = gate.ask("nvmlDeviceGetFieldValues", tuple((f.id, f.scope) for f in self._fields))
        if answers is None:
            return {}
        found: dict[str, float] = {}
        absent: set[Field] = set()
        for field, answer in zip(self._fields, answers, strict=True):
            code = int(answer.nvmlReturn)
            if code == SUCCESS:
                kind = int(answer.valueType)
                number = number_in(kind, answer.value)
                if number is None or (field.wide and kind not in WIDE):
                    absent.add(field)
                else:
                    found[field.key] = found.get(field.key, 0.0) + number * field.scale
            elif code in LOST:
                raise DeviceLost(f"field {field.id}: NVML error {code}")
            elif code in NEVER:
                absent.add(field)
        if absent:
            self._fields = tuple(f for f in self._fields if f not in absent)
        return found
