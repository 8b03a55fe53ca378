"""Creates copies of a container."""

from typing import Any

from flyball_actuators.platforms.docker.containers import COPY_OF, DECISION, Container, part

_OF_COMPOSE = "com.docker.compose."
_MANY_NETWORKS = (1, 44)


def template_of(containers: list[Container]) -> Container:
    """The container to copy: the oldest original, else the oldest copy."""
    return min(containers, key=lambda one: (COPY_OF in one.labels, one.shown.created, one.name))


def base_name(template: Container) -> str:
    """Prefix of the names of copies."""
    return template.labels.get(COPY_OF, template.name)


def uncopyable(template: Container, version: tuple[int, int]) -> str | None:
    """Why a container cannot be copied, with the remedy; ``None`` if it can."""
    host = part(template.raw, "HostConfig")
    if host.get("AutoRemove"):
        return f"container {template.name} is removed when it stops; run it without --rm"
    ports: dict[str, list[dict[str, str]] | None] = part(host, "PortBindings")
    for port, bindings in ports.items():
        if any(binding.get("HostPort", "").isdigit() for binding in bindings or ()):
            return (
                f"container {template.name} has a fixed port of the machine for {port}, which only one can have; "
                f"publish it as -p {port.partition('/')[0]} or a range"
            )
    networks = _networks(template)
    fixed = next((name for name, one in networks.items() if part(one, "IPAMConfig").get("IPv4Address")), None)
    if fixed is not None:
        return f"container {template.name} has a fixed address in network {fixed}; run it without --ip"
    if len(networks) > 1 and version < _MANY_NETWORKS:
        return f"container {template.name} is in {len(networks)} networks, and this engine starts copies in one only"
    return None


def body_of(template: Container, decision: str) -> dict[str, Any]:
    """Request to create a copy, with its own name, addresses and anonymous volumes."""
    raw = template.raw
    config: dict[str, Any] = {key: value for key, value in raw["Config"].items() if key != "MacAddress"}
    if config.get("Hostname") == template.id[:12]:
        del config["Hostname"]
    kept = {key: value for key, value in template.labels.items() if not key.startswith(_OF_COMPOSE)}
    config["Labels"] = {**kept, DECISION: decision, COPY_OF: base_name(template)}
    config["Image"] = raw["Image"]  # the same image, even if its tag has moved on
    host = {**raw["HostConfig"], "ContainerIDFile": ""}
    own = (template.id[:12], template.name)
    networks = {
        name: {"Aliases": [alias for alias in one.get("Aliases") or () if alias not in own]}
        for name, one in _networks(template).items()
    }
    return {**config, "HostConfig": host, "NetworkingConfig": {"EndpointsConfig": networks}}


def _networks(template: Container) -> dict[str, dict[str, Any]]:
    """User-defined networks of the container; the engine's own need no configuration."""
    joined: dict[str, dict[str, Any]] = part(part(template.raw, "NetworkSettings"), "Networks")
    return {name: one for name, one in joined.items() if name not in ("bridge", "host", "none")}
