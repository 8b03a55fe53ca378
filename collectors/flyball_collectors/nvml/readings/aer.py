"""PCIe errors of a GPU as the kernel counts them (advanced error reporting), if the driver does not report them."""

from pathlib import Path

from flyball_collectors.base import NAN
from flyball_collectors.kernel import numbers, text_of
from flyball_contracts.metrics import GPU_DETAIL

_FILES = {"correctable": "aer_dev_correctable", "non_fatal": "aer_dev_nonfatal", "fatal": "aer_dev_fatal"}
_TOTALS = {"correctable": "TOTAL_ERR_COR", "non_fatal": "TOTAL_ERR_NONFATAL", "fatal": "TOTAL_ERR_FATAL"}
_PARTS = {"bad_tlp": "BadTLP", "bad_dllp": "BadDLLP"}
_COLUMNS = {kind: GPU_DETAIL.column(f"nvidia.gpu.pcie.errors{{type={kind}}}") for kind in (*_FILES, *_PARTS)}


class AerCounters:
    """Counters of one PCI device under ``root``, readable by everyone; a kernel without them is queried once."""

    def __init__(self, root: Path, address: str | None) -> None:
        self._folder = root / "sys/bus/pci/devices" / address if address else None

    def put(self, row: list[float]) -> None:
        """Fill unknown count columns of ``row`` (of :data:`GPU_DETAIL`)."""
        if self._folder is None or all(row[column] == row[column] for column in _COLUMNS.values()):
            return
        found: dict[str, float] = {}
        for kind, name in _FILES.items():
            counts = _counts(text_of(self._folder / name))
            found[kind] = counts.get(_TOTALS[kind], NAN)
            if kind == "correctable":
                found |= {part: counts.get(word, NAN) for part, word in _PARTS.items()}
        if all(count != count for count in found.values()):
            self._folder = None
        for kind, column in _COLUMNS.items():
            if row[column] != row[column]:
                row[column] = found.get(kind, NAN)


def _counts(text: str) -> dict[str, float]:
    """Lines of a name and a number each; others are skipped."""
    pairs = [line.split() for line in text.splitlines()]
    return {pair[0]: float(value[0]) for pair in pairs if len(pair) == 2 and (value := numbers(pair[1:]))}
