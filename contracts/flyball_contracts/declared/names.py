"""Names of workloads in a Kubernetes cluster."""

ANNOTATION = "flyball.dev/workload"


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
