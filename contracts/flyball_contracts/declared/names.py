"""Names of workloads in a Kubernetes cluster, and the namespaces that they belong to."""

from collections.abc import Mapping

import msgspec

ANNOTATION = "flyball.dev/workload"
GROUP, VERSION = "flyball.dev", "v1alpha1"
NAMES_KIND = "WorkloadNames"
NAMES = "flyball"
"""The object of this kind and name has the names of a cluster; the controller writes it, and agents read it."""
NAMES_PATH = f"/apis/{GROUP}/{VERSION}/workloadnames/{NAMES}"


class NamesSpec(msgspec.Struct, frozen=True):
    """The namespaces whose pods may bear a name, by name; names with a ``/`` contain their namespace.

    ``complete``: a controller that reads the whole cluster gives each further name to the pods that bear it first.
    """

    names: Mapping[str, tuple[str, ...]] = {}
    complete: bool = False


class NamesObject(msgspec.Struct, frozen=True):
    """A ``WorkloadNames`` object as the API server has it."""

    spec: NamesSpec = NamesSpec()


def foreign(name: str, namespace: str) -> str:
    """Why an object of ``namespace`` must not bear the name in its annotation; empty if it may.

    A name ``namespace/name`` belongs to objects of that namespace, so that no object claims another's workload.
    """
    home, slash, _ = name.partition("/")
    if not slash or home == namespace:
        return ""
    return (
        f"{ANNOTATION} is {name!r}, of namespace {home!r}; only objects of {home} may have that name: "
        "choose one without '/'"
    )
