"""A secured broker with a listener for each login method, and with StandardAuthorizer."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from demo.kafka.brokers import Broker, running_brokers
from demo.kafka.processes import free_ports
from tests.support.certificates import MARK, STORE_PASSWORD, Authority, Identity

ROOT, MIRROR = "root", "mirror"  # a superuser, and a user with granted ACLs only
PASSWORD = f"{MARK}password w;'=x"
MODULES = "org.apache.kafka.common.security"
WAIT_S = 30

# By listener: its protocol and its certificate.
LISTENERS = {
    "SASL": ("SASL_PLAINTEXT", None),
    "TLS": ("SSL", "broker"),
    "MUTUAL": ("SSL", "broker"),
    "SASLTLS": ("SASL_SSL", "broker"),
    "EXPIRED": ("SSL", "expired"),
    "ELSEWHERE": ("SSL", "elsewhere"),
}


@dataclass(frozen=True)
class Certificates:
    """Certificates of brokers and of a client, and the authority of both."""

    authority: Authority
    broker: Identity
    expired: Identity
    elsewhere: Identity
    client: Identity

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        """Create all of them in *folder*."""
        authority = Authority(folder)
        return cls(
            authority,
            broker=authority.identity("broker"),
            expired=authority.identity("expired", days=-1),
            elsewhere=authority.identity("elsewhere", host="kafka.example"),
            client=authority.identity(ROOT),
        )


class SecuredBroker(Broker):
    """A broker with all of LISTENERS. On the plain one the tests have all permissions."""

    def __init__(self, name: str, home: Path, certificates: Certificates) -> None:
        super().__init__(name, home)
        self._trusted = certificates.authority.certificate
        controller, *ports = free_ports(1 + len(LISTENERS))
        self._at = {name: f"127.0.0.1:{port}" for name, port in zip(LISTENERS, ports, strict=True)}
        outside = {"PLAINTEXT": self.bootstrap_servers, **self._at}
        advertised = ",".join(f"{name}://{at}" for name, at in outside.items())
        kinds = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        kinds |= {name: kind for name, (kind, _) in LISTENERS.items()}
        self.properties |= {
            "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": advertised,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": ",".join(f"{n}:{k}" for n, k in kinds.items()),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{ROOT}",
            "num.network.threads": "1",
            "connection.failed.authentication.delay.ms": "0",
            **_sasl("sasl", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
            **_sasl("sasltls", "PLAIN", "SCRAM-SHA-512"),
            **_mutual(certificates.authority),
        }
        for listener, (_, shows) in LISTENERS.items():
            if shows is not None:
                self.properties |= _shows(listener.lower(), getattr(certificates, shows))

    def at(self, listener: str) -> str:
        """Return the address of *listener*."""
        return self._at[listener]

    def by_tls(self) -> dict[str, str]:
        """Return the Java properties of a TLS client with all permissions."""
        return {
            "bootstrap.servers": self.at("TLS"),
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trusted),
        }

    def let_in(self) -> None:
        """Create SCRAM credentials of ROOT, which are stored in the cluster."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            asked = UserScramCredentialUpsertion(
                ROOT, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
            )
            admin.alter_user_scram_credentials([asked])[ROOT].result(WAIT_S)


def _sasl(listener: str, *mechanisms: str) -> dict[str, str]:
    modules = {
        "PLAIN": f"{MODULES}.plain.PlainLoginModule required "
        + " ".join(f'user_{user}="{PASSWORD}"' for user in (ROOT, MIRROR)),
        "OAUTHBEARER": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker"',
    }
    scram = f"{MODULES}.scram.ScramLoginModule required"
    prefix = f"listener.name.{listener}"
    return {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(mechanisms),
        **{
            f"{prefix}.{each.lower()}.sasl.jaas.config": f"{modules.get(each, scram)};"
            for each in mechanisms
        },
    }


def _shows(listener: str, identity: Identity) -> dict[str, str]:
    prefix = f"listener.name.{listener}.ssl.keystore"
    return {
        f"{prefix}.type": "PKCS12",
        f"{prefix}.location": str(identity.pkcs12()),
        f"{prefix}.password": STORE_PASSWORD,
    }


def _mutual(authority: Authority) -> dict[str, str]:
    prefix = "listener.name.mutual.ssl"
    return {
        f"{prefix}.client.auth": "required",
        f"{prefix}.truststore.type": "PEM",
        f"{prefix}.truststore.location": str(authority.certificate),
        f"{prefix}.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
    }


@contextmanager
def secured_brokers(home: Path, *names: str) -> Iterator[tuple[Certificates, list[SecuredBroker]]]:
    """Start secured brokers called *names* in parallel; stop them after the block."""
    certificates = Certificates.make(home / "certificates")
    brokers = [SecuredBroker(name, home / name, certificates) for name in names]
    with running_brokers(*brokers):
        for broker in brokers:
            broker.let_in()
        yield certificates, brokers


def log_in(mechanism: str, user: str = ROOT, password: str = PASSWORD) -> dict[str, str]:
    """Return the Java properties for SASL *mechanism* with a password."""
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{MODULES}.{module}LoginModule required username="{user}" '
        f'password="{password}";',
    }


@contextmanager
def token_endpoint(secret: str, subject: str = ROOT) -> Iterator[str]:
    """Serve tokens for *subject* to clients with *secret*; yield the endpoint's URL."""
    expected = base64.b64encode(f"mirror:{secret}".encode()).decode()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            known = self.headers["Authorization"] == f"Basic {expected}"
            answer = {"access_token": _token(subject)} if known else {"error": "invalid_client"}
            body = json.dumps(answer).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        server.server_close()


def _token(subject: str) -> str:
    """Return an unsecured token, which Kafka's own validator accepts."""
    now = int(time.time())
    claims = {"sub": subject, "iat": now, "exp": now + 3600, "scope": "kafka"}
    parts: list[Mapping[str, object]] = [{"alg": "none"}, claims]
    return (
        ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in parts
        )
        + "."
    )
