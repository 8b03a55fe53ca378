"""Preempt: replicas stop so that something else can run."""

from flyball_contracts.records.base import TimeNs
from flyball_contracts.records.commands.kinds.base import PLAIN, Urgency, Wording
from flyball_contracts.records.commands.kinds.replicas import SetsReplicas
from flyball_contracts.records.commands.states import SubjectState
from flyball_contracts.records.workloads import WorkloadSpec


class Preempt(SetsReplicas, tag="Preempt", frozen=True, kw_only=True):
    """Stop or suspend replicas so that something more urgent, cheaper or greener can run.

    ``replicas`` run on afterwards; ``victims`` names those to stop, empty for the platform's choice. ``until_ns`` is
    when the work may come back, ``None`` for when there is room. A workload that is its own ``beneficiary`` hangs: it
    is stopped to be started again.
    """

    until_ns: TimeNs | None = None
    checkpoint: bool = True
    beneficiary: str = ""
    victims: tuple[str, ...] = ()

    @property
    def named_replicas(self) -> tuple[str, ...]:
        """The replicas to stop."""
        return self.victims

    @property
    def besides(self) -> tuple[str, ...]:
        """Which replicas stop, if some run on."""
        return ("a choice of the replicas that stop",) if self.victims and self.replicas else ()

    @property
    def claimed_urgency(self) -> Urgency:
        """A deferral, if it stops work until a time and for no other work."""
        return "deferral" if self.until_ns is not None and not self.beneficiary else "normal"

    @property
    def restarts(self) -> bool:
        """Whether the workload is stopped to be started again."""
        return self.beneficiary == self.workload

    def invalid(self, spec: WorkloadSpec | None) -> str:
        """Error in the numbers, the victims or the time, or something that the owner does not allow."""
        if self.restarts:
            if spec is not None and spec.restart_hung_after_s is None:
                return f"workload {spec.workload!r} is not to be restarted; its owner must set restart_hung_after_s"
        elif spec is not None and not spec.interruptible:
            return f"workload {spec.workload!r} is not interruptible; its owner must set interruptible to allow this"
        if not 0 <= self.replicas < self.replicas_before:
            return (
                f"{self.replicas} replicas of {self.replicas_before} stay; a preemption must take some away, "
                "and leave none or more"
            )
        going, named = self.replicas_before - self.replicas, len(self.victims)
        if len(set(self.victims)) != named or named > going:
            return f"{named} victims are named for {going} replicas to go; name at most that many, each once"
        if self.until_ns is not None and self.until_ns <= self.time_ns:
            return "until_ns is not after time_ns; the pause would be over before it began"
        if self.restarts:
            return f"{self.replicas} replicas stay; a restart must stop all" if self.replicas else ""
        return self.out_of_range(spec)

    def conflict(self, observed: SubjectState, assumed: tuple[int, ...] = ()) -> str:
        """As for any change of the number of replicas; in addition, a preemption never starts any."""
        shown = observed.ready if observed.replicas is None else observed.replicas
        if shown is not None and self.replicas > shown:
            return f"{self.replicas} replicas should stay, but the platform shows {shown}: a preemption starts none"
        return super().conflict(observed, assumed)

    def expected_state(self, observed: SubjectState) -> SubjectState:
        """The remaining replicas, all ready, and the victims on no node."""
        return SubjectState(replicas=self.replicas, ready=self.replicas, nodes=dict.fromkeys(self.victims, ""))

    def change(self, wording: Wording = PLAIN) -> str:
        """``4 → 2 replicas until there is room``, with what stops and for which workload."""
        until = "there is room" if self.until_ns is None else wording.clock(self.until_ns)
        if self.restarts:
            return f"{self.count_text()}, then {self.replicas_before} again: it hangs"
        victims = f" ({', '.join(self.victims)} stop)" if self.victims else ""
        room = f", to make room for {self.beneficiary}" if self.beneficiary else ""
        checkpoint = "" if self.checkpoint else ", without a checkpoint"
        return f"{self.count_text()}{victims} until {until}{room}{checkpoint}"
