"""Certificates, users and access lists for a secured broker, and Flyball's commands on it."""

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from tests.brokers.kafka import RealKafka

from flyball_cli.acls import render
from flyball_cli.topics import create_topics
from flyball_contracts.config import Config, KafkaConfig
from flyball_contracts.security.rights import Right, roles

ROLES = roles(Config())
END_S = 180.0


def passwords() -> dict[str, str]:
    """The users of the broker: one a role."""
    return {f"flyball-{role}": f"secret-{role}" for role in ROLES}


def certificate(folder: Path, host: str) -> Path:
    """A self-signed certificate of a host, `HOST.crt`, and the keystore with its key."""
    key, crt, store = (folder / f"{host}.{end}" for end in ("key", "crt", "pem"))
    subject = ["-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}", "-days", "2"]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(crt)]
    subprocess.run([*new, *subject], check=True, capture_output=True)
    store.write_text(key.read_text() + crt.read_text())
    return store


class Ground:
    """The broker with its printed rights."""

    def __init__(self, broker: RealKafka, folder: Path) -> None:
        self.broker = broker
        self._folder = folder
        self._admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap})

    def client(self, role: str, **other: str) -> dict[str, str]:
        """`kafka.client` of a role."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": f"flyball-{role}",
            "sasl.password": self.secret(role, f"secret-{role}"),
            "ssl.ca.location": str(self._folder / "localhost.crt"),
        } | {name.replace("_", "."): value for name, value in other.items()}

    def secret(self, name: str, value: str) -> str:
        """A secret as the configuration names it: in a file of its own."""
        path = self._folder / f"{name}.password"
        path.write_text(f"{value}\n")
        return f"file:{path}"

    def config(self, role: str) -> Config:
        """The configuration of a role."""
        return Config(kafka=KafkaConfig(bootstrap=self.broker.secured_bootstrap, client=self.client(role)))

    def create(self) -> None:
        """Create the topics that are not there yet."""
        create_topics(Config(kafka=KafkaConfig(bootstrap=self.broker.bootstrap)).kafka)

    def grant_all(self) -> None:
        """Carry out the printed commands."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--allow-principal")
        parser.add_argument("--operation")
        parser.add_argument("--topic", action="append", default=[])
        parser.add_argument("--group", action="append", default=[])
        bindings: list[Any] = []
        for line in render(Config()).splitlines():
            if line.startswith("#"):
                continue
            parts, _ = parser.parse_known_args(shlex.split(line))
            for kind in ("topic", "group"):
                for name in getattr(parts, kind):
                    right = Right(parts.operation, kind, name)
                    bindings.append(_binding(AclBinding, parts.allow_principal, right))
        for future in self._admin.create_acls(bindings).values():
            future.result(END_S)

    def give(self, role: str, right: Right) -> None:
        """Grant a right."""
        for future in self._admin.create_acls([_binding(AclBinding, f"User:flyball-{role}", right)]).values():
            future.result(END_S)

    def take(self, role: str, right: Right) -> None:
        """Take a right away; it was there."""
        for future in self._admin.delete_acls([_binding(AclBindingFilter, f"User:flyball-{role}", right)]).values():
            assert len(future.result(END_S)) == 1

    def start(self, role: str, *arguments: str, bootstrap: str = "", **other: str) -> subprocess.Popen[str]:
        """Start a command of `flyball` as a role."""
        file = self._folder / f"{role}.yaml"
        lines = [f"    {name}: '{value}'" for name, value in self.client(role, **other).items()]
        where = bootstrap or self.broker.secured_bootstrap
        agent = f"agent:\n  disabled: [nvml, kmsg]\n  node: n1\n  state_dir: {self._folder / 'state'}\n"
        ledger = f"actuator:\n  ledger: {self._folder / 'ledger'}\ndashboard:\n  port: 0\n"
        file.write_text("\n".join(["kafka:", f"  bootstrap: '{where}'", "  client:", *lines, agent + ledger]))
        return subprocess.Popen(
            [sys.executable, "-m", "flyball_cli", *arguments, "--config", str(file)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, role: str, *arguments: str, bootstrap: str = "", **other: str) -> tuple[int, Sequence[str]]:
        """Exit status and standard error of a command that ends by itself."""
        process = self.start(role, *arguments, bootstrap=bootstrap, **other)
        try:
            _, errors = process.communicate(timeout=END_S)
        finally:
            process.kill()
        return process.returncode, errors.splitlines()


def _binding(make: Any, principal: str, right: Right) -> Any:
    return make(
        ResourceType[right.resource.upper()],
        right.name,
        ResourcePatternType.LITERAL,
        principal,
        "*",
        AclOperation[right.operation.upper()],
        AclPermissionType.ALLOW,
    )
