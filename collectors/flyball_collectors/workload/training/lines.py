r"""Reports of training scripts: lines of the InfluxDB line protocol.

::

    training,workload=llama-ft,replica=0 step=1200,loss=2.31,step_time_s=0.42,tokens_per_s=81234,progress=0.12

The measurement is ``training``; the tag ``workload`` is required, ``replica`` is this node if the tag is missing.
Fields are numbers (``12``, ``12i``, ``1.5``): ``step``, ``steps``, ``loss``, ``step_time_s``, ``progress`` (0 to 1) and
one of ``throughput``, ``tokens_per_s`` and ``samples_per_s``, in the unit of the workload's capacity. A time at the end
is allowed and ignored. A datagram may hold several lines.

A Slurm job's row has the name ``workload=slurm/$SLURM_JOB_ID,replica=$SLURM_JOB_ID.NODE``: a script of the job with
this name shares its row, as does a pod that sends the workload of its annotation and its own name. The sender is known
only over a Unix socket; over UDP a line counts where a rule gives its name to all senders
(``flyball_collectors.workload.names``).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from flyball_collectors.workload.training.job import FIELDS

_MEASUREMENT = "training"
_NAME_LENGTH = 253
_PART = r'(?:[^\s,=\\"]|\\.)++'
_LINE = re.compile(
    rf"(?P<measurement>(?:[^\s,\\]|\\.)+)(?P<tags>(?:,{_PART}={_PART})*) +"
    rf'(?P<fields>{_PART}=(?:"(?:[^"\\]|\\.)*"|[^\s,"]+)(?:,{_PART}=(?:"(?:[^"\\]|\\.)*"|[^\s,"]+))*)(?: +-?\d+)? *'
)
_PAIR = re.compile(rf',?({_PART})=("(?:[^"\\]|\\.)*"|(?:[^\s,\\"]|\\.)+)')
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[iu]?")


class Line(NamedTuple):
    """One reported line; an empty ``replica`` is that of the node, and ``pid`` the sender's process, 0 if unknown."""

    workload: str
    replica: str
    fields: Mapping[str, float]
    pid: int = 0


def parse_line(text: str) -> Line | None:
    """Parse one line; ``None`` for an unknown or malformed one."""
    parts = _LINE.fullmatch(text.strip())
    if parts is None or parts["measurement"] != _MEASUREMENT:
        return None
    tags = {_plain(pair[1]): _plain(pair[2]) for pair in _PAIR.finditer(parts["tags"])}
    fields: dict[str, float] = {}
    for pair in _PAIR.finditer(parts["fields"]):
        number = _NUMBER.fullmatch(pair[2])
        if number is not None and pair[1] in FIELDS:
            fields[pair[1]] = float(number[1])
    workload, replica = tags.get("workload", ""), tags.get("replica", "")
    named = 0 < len(workload) <= _NAME_LENGTH and len(replica) <= _NAME_LENGTH
    return Line(workload, replica, fields) if named and fields else None


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
