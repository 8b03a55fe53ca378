"""A listener of a real Kafka with TLS, passwords and access lists."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.brokers.server import LOOPBACK


@dataclass(frozen=True, slots=True)
class Secured:
    """The listener's PEM file (PKCS #8 key, then certificate) and the passwords of its users (SASL PLAIN).

    The listener without TLS stays, for the broker itself and for who sets up its rights: it may do everything.
    """

    keystore: Path
    passwords: Mapping[str, str]

    def properties(self, plain_port: int, controller_port: int, port: int) -> str:
        """Return lines to append to `server.properties`; they override earlier ones."""
        users = " ".join(f'user_{name}="{password}"' for name, password in self.passwords.items())
        plain = f"PLAINTEXT://{LOOPBACK}:{plain_port}"
        lines = {
            "listeners": f"{plain},CONTROLLER://{LOOPBACK}:{controller_port},SECURED://{LOOPBACK}:{port}",
            "advertised.listeners": f"{plain},SECURED://localhost:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secured.plain.sasl.jaas.config": (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": "User:ANONYMOUS",
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())
