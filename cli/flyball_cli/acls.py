"""Kafka access lists as `kafka-acls.sh` commands."""

import shlex

import click

from flyball_contracts.config import Config
from flyball_contracts.security.rights import Right, roles

_ADD = "kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add"


def render(config: Config, role: str | None = None, principal: str | None = None) -> str:
    """Return the commands that grant each role its rights, or one role, to one ``principal``.

    Raises a usage error for an unknown role, and for a principal without a role.
    """
    known = roles(config)
    if role is not None and role not in known:
        raise click.BadParameter(f"{role!r} is not one of {', '.join(known)}", param_hint="--role")
    if principal is not None and (role is None or not principal.startswith("User:")):
        raise click.BadParameter(f"{principal!r} must be User:NAME, and goes with --role", param_hint="--principal")
    chosen = known if role is None else {role: known[role]}
    lines: list[str] = []
    for name, part in chosen.items():
        lines.append(f"# {name}: {part.command}")
        user = shlex.quote(principal or f"User:flyball-{name}")
        together: dict[tuple[str, str], list[Right]] = {}
        for right in part.rights():
            together.setdefault((right.operation, right.resource), []).append(right)
        for (operation, resource), rights in together.items():
            named = " ".join(f"--{resource} {shlex.quote(right.name)}" for right in rights)
            lines.append(f"{_ADD} --allow-principal {user} --operation {operation} {named}")
    return "\n".join(lines) + "\n"
