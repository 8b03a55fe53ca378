"""The scope of the key that signed a decision."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from flyball_contracts.config import DecisionKey
from flyball_contracts.records import AnyDecision
from flyball_contracts.records.subjects import covered


class Signature(NamedTuple):
    """The key that signed a decision: its ``id``, its place in the configuration (``where``), and its ``scope``."""

    id: str
    where: str
    scope: DecisionKey


def out_of_scope(signature: Signature, decision: AnyDecision, driver: str) -> str:
    """Why the key may not sign a decision that ``driver`` carries out, empty if it may; does not check the tenant."""
    return next(_problems(signature, decision, driver), "")


def _problems(signature: Signature, decision: AnyDecision, driver: str) -> Iterator[str]:
    scope, kind = signature.scope, type(decision).__name__
    if scope.types and kind not in scope.types:
        yield _problem(signature, "types", scope.types, f"of type {kind}")
    if not any(fnmatchcase(decision.cell, pattern) for pattern in scope.cells):
        yield _problem(signature, "cells", scope.cells, f"about cell {decision.cell!r}")
    if not covered(decision.workload, scope.workloads):
        yield _problem(signature, "workloads", scope.workloads, f"about {decision.workload!r}")
    if scope.platforms and driver not in scope.platforms:
        yield _problem(signature, "platforms", scope.platforms, f"one that {driver or 'no platform'} carries out")


def of_other_tenant(signature: Signature, decision: AnyDecision, tenant: str) -> str:
    """Why the key may not sign a decision about a workload of ``tenant`` (empty: it has none); empty if it may."""
    if any(fnmatchcase(tenant, pattern) for pattern in signature.scope.tenants):
        return ""
    whose = f"of tenant {tenant!r}" if tenant else "of no tenant"
    return _problem(signature, "tenants", signature.scope.tenants, f"about {decision.workload!r} {whose}")


def _problem(signature: Signature, what: str, allowed: tuple[str, ...], actual: str) -> str:
    return (
        f"key {signature.id} may sign for {what} {', '.join(allowed)}, and this decision is {actual}; sign it with "
        f"another key, or widen {signature.where}.{what}"
    )
