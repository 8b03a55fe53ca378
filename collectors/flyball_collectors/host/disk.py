"""Disk traffic from ``/proc/diskstats``."""

import re
from pathlib import Path

from flyball_collectors.base import Values
from flyball_collectors.kernel import numbers, text_of

_SECTOR_BYTES = 512  # the unit of this file, whatever the disk's own sectors are
# Mapped and RAID devices are left out with the rest: their bytes are counted on the disks below them.
_NOT_A_DISK = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd)\d+")
_DISK = re.compile(r"(sd|vd|xvd|hd)[a-z]+|(nvme\d+n|mmcblk|pmem|dasd)\d+")


def read_disk(root: Path) -> Values:
    """Bytes and time (s) of reads and writes since boot, for each whole disk.

    A whole disk is one in ``/sys/block`` or, without that folder, one with a disk's name.
    """
    try:
        whole = {entry.name for entry in (root / "sys/block").iterdir()}
    except OSError:
        whole = None
    columns: dict[str, dict[str, float]] = {
        "system.disk.io{direction=read}": {},
        "system.disk.operation_time{direction=read}": {},
        "system.disk.io{direction=write}": {},
        "system.disk.operation_time{direction=write}": {},
    }
    known = False
    for line in text_of(root / "proc/diskstats").splitlines():
        fields = line.split()
        counts = numbers(fields[3:11])
        if len(counts) < 8:
            continue
        known = True
        disk = fields[2]
        if _NOT_A_DISK.fullmatch(disk) or not (_DISK.fullmatch(disk) if whole is None else disk in whole):
            continue
        _, _, sectors_read, read_ms, _, _, sectors_written, write_ms = counts
        values = (sectors_read * _SECTOR_BYTES, read_ms / 1e3, sectors_written * _SECTOR_BYTES, write_ms / 1e3)
        for column, value in zip(columns.values(), values, strict=True):
            column[disk] = value
    return columns if known else {}
