"""The parts of a platform's state that a decision concerns, and the state it should lead to."""

from flyball_contracts.records import AnyDecision, Check, Migrate, Preempt, Scale, SubjectState


def named_replicas(decision: AnyDecision) -> tuple[str, ...]:
    """The replicas that a decision names."""
    if isinstance(decision, Migrate):
        return (decision.replica,)
    return decision.victims if isinstance(decision, Preempt) else ()


def expected_of(decision: AnyDecision, observed: SubjectState) -> SubjectState:
    """State that the platform should show once it has carried out the decision."""
    if isinstance(decision, Migrate):
        nodes = {decision.replica: decision.to_node} if decision.to_node else {}
        return SubjectState(replicas=observed.replicas, ready=observed.ready, nodes=nodes)
    if isinstance(decision, Check):
        return SubjectState(replicas=0, suspended=False)
    count = decision.replicas
    if isinstance(decision, Scale):
        return SubjectState(
            replicas=count,
            ready=count,
            power_limit_w=decision.power_limit_w,
            resources=decision.resources,
            mix=decision.mix,
        )
    return SubjectState(replicas=count, ready=count, nodes=dict.fromkeys(decision.victims, ""))
