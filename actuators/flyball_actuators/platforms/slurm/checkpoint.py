"""The signal on which a job writes a checkpoint, and the time it needs: what ``sbatch --signal`` sets."""

import re
from typing import NamedTuple

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_actuators.platforms.slurm.jobs import Job

COMMENT = "flyball.dev/checkpoint="
DEFAULT_S, LONGEST_S = 60, 600
_FORM = re.compile(r"(?:([RB]+):)?([A-Za-z0-9]+)(?:@(\d+))?")
_OPTION = re.compile(r"#SBATCH\s+(?:.*\s)?--signal[=\s]\s*(\S+)")


class Checkpoint(NamedTuple):
    """``signal`` is sent to the batch script or to the steps; ``grace_s`` seconds later the job is stopped."""

    signal: str
    script: bool
    grace_s: int

    def send(self, commands: Commands, job: Job) -> Rejected | None:
        """Send the signal; safe to repeat."""
        to = ("--batch",) if self.script else ()
        return commands.apply("scancel", f"--signal={self.signal}", *to, job.key)


def parse(text: str) -> Checkpoint | None:
    """Parse ``--signal=[R|B:]SIGNAL[@SECONDS]``."""
    found = _FORM.fullmatch(text.strip("'\""))
    if found is None:
        return None
    flags, signal, seconds = found.groups()
    return Checkpoint(signal.upper(), "B" in (flags or ""), min(int(seconds) if seconds else DEFAULT_S, LONGEST_S))


def checkpoint_of(commands: Commands, job: Job) -> Checkpoint | None:
    """Checkpoint of a job, from its comment, else from the ``#SBATCH`` lines of its script.

    Slurm does not show the options of the ``sbatch`` command line.
    """
    for word in job.comment.split():
        if word.startswith(COMMENT):
            return parse(word.removeprefix(COMMENT))
    if not job.batch:
        return None
    script = commands.run("scontrol", "write", "batch_script", job.key, "-", changes=False)
    if isinstance(script, Rejected):
        return None
    for line in script.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            break
        option = _OPTION.match(line)
        if option:
            return parse(option[1])
    return None
