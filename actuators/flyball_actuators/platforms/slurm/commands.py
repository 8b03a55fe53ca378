"""Runs Slurm's commands: arguments in, text out. A refusal by Slurm is distinguished from an unknown result."""

import os
import subprocess

from flyball_actuators.platforms.base import PlatformError, Rejected
from flyball_actuators.platforms.calls import check_stop, record_call
from flyball_contracts.records.commands.outcomes import RefusalCode

# Variables that change the output of the commands, or the cluster they query.
_OURS = ("SLURM_", "SQUEUE_", "SCANCEL_", "SCONTROL_")
_OPERATOR = "run the actuator as SlurmUser or as an operator (sacctmgr modify user NAME set adminlevel=operator)"
_AGAIN = "decide again on what the queue shows now"
# Answers by which slurmctld refuses a command; after any other error, the command may have had an effect.
_NO: tuple[tuple[str, RefusalCode, str], ...] = (
    ("Access/permission denied", "platform", _OPERATOR),
    ("Invalid user id", "platform", _OPERATOR),
    ("Invalid job id", "conflict", _AGAIN),
    ("Job is pending execution", "conflict", _AGAIN),
    ("Job is no longer pending", "conflict", _AGAIN),
    ("already completing or completed", "conflict", _AGAIN),
    ("Requested operation is presently disabled", "unsupported", "submit the job with --requeue"),
    ("Requested operation not supported", "unsupported", "change the job by hand"),
    ("Only batch jobs are accepted", "unsupported", "submit the work with sbatch"),
    ("Invalid node name", "unknown_target", "name a node of this cluster"),
    ("Invalid node state", "unsupported", "set SuspendProgram, ResumeProgram and SuspendTime in slurm.conf"),
    ("Requested nodes are busy", "conflict", _AGAIN),
    ("Duplicate reservation name", "conflict", _AGAIN),
    ("Requested reservation is", "conflict", _AGAIN),
)


class Commands:
    """Runs the commands of one cluster, without a shell.

    ``conf`` is its slurm.conf, empty for the machine's default.
    """

    def __init__(self, conf: str, timeout_s: float) -> None:
        self._conf, self._timeout_s = conf, timeout_s

    def query(self, *command: str) -> str:
        """Output of a command; :class:`PlatformError` if it fails."""
        code, out, problem = self._execute(command)
        if code:
            raise PlatformError(f"{' '.join(command)}: {problem or f'status {code}'}")
        return out

    def apply(self, *command: str) -> Rejected | None:
        """Run a command that changes something; ``Rejected`` if Slurm refuses it.

        Raises :class:`PlatformError` if its effect is unknown.
        """
        done = self.run(*command)
        return done if isinstance(done, Rejected) else None

    def run(self, *command: str, changes: bool = True) -> str | Rejected:
        """Output of a command, or ``Rejected`` if Slurm refuses it; raises as :meth:`apply`.

        With ``changes`` it may change something, and raises :class:`StoppedError` if changes are stopped.
        """
        what = command[0], " ".join(command[1:])
        if changes:
            check_stop()
        try:
            code, out, problem = self._execute(command)
        except PlatformError as error:
            if changes:
                record_call(*what, f"no answer: {error}")
            raise
        if changes:
            record_call(*what, f"exit {code}{f': {problem}' if problem else ''}")
        if not code:
            return out
        for text, refusal, remedy in _NO:
            if text in problem:
                return Rejected(refusal, f"{' '.join(command)}: {problem}; {remedy}")
        raise PlatformError(f"{' '.join(command)}: {problem or f'status {code}'}")

    def _execute(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        conf = self._conf or os.environ.get("SLURM_CONF", "")
        plain = {"LC_ALL": "C", "SLURM_BITSTR_LEN": "0"}  # no list of array tasks is cut off
        environment = {**kept, **plain, **({"SLURM_CONF": conf} if conf else {})}
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout_s,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PlatformError(f"{' '.join(command)}: no answer within {self._timeout_s:g} s") from error
        except OSError as error:
            raise PlatformError(f"{command[0]}: {error}; install Slurm's commands (slurm-client)") from error
        problem = " ".join(done.stderr.decode(errors="replace").split())
        return done.returncode, done.stdout.decode(errors="replace"), problem
