"""Create certificates for tests with `openssl` and keystores with Java's `keytool`."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from resources.java import java

KEY_TYPE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
MARK = f"marked-{os.getpid():x}-"
"""Prefix of all secrets except keys. Tests that run at the same time have other prefixes."""
STORE_PASSWORD = f"{MARK}store w'=x"


@dataclass(frozen=True)
class Identity:
    """A certificate with its chain, and its key, as PEM."""

    certificate: Path
    key: Path

    @property
    def pem(self) -> str:
        """The certificates followed by the key, as in a PEM keystore."""
        return self.certificate.read_text() + self.key.read_text()

    def pkcs12(self, password: str = STORE_PASSWORD) -> Path:
        """Return a PKCS12 keystore with both."""
        store = self.certificate.with_suffix(".p12")
        _openssl(
            *("pkcs12", "-export", "-in", self.certificate, "-inkey", self.key, "-out", store),
            *("-name", "mirror", "-passout", "env:STORE_PASSWORD"),
            password=password,
        )
        return store

    def jks(self, password: str = STORE_PASSWORD) -> Path:
        """Return a JKS keystore with both."""
        store = self.certificate.with_suffix(".jks")
        store.unlink(missing_ok=True)
        keytool(
            *("-importkeystore", "-srckeystore", self.pkcs12(password), "-destkeystore", store),
            *("-deststoretype", "JKS", "-srcstorepass:env", "STORE_PASSWORD"),
            *("-deststorepass:env", "STORE_PASSWORD", "-noprompt"),
            password=password,
        )
        return store

    def encrypted_key(self, password: str) -> str:
        """Return the key in PEM, encrypted with *password*."""
        return _openssl(
            *("pkcs8", "-topk8", "-in", self.key, "-passout", "env:STORE_PASSWORD"),
            password=password,
        )


class Authority:
    """A certificate authority called *name*, with its files in *folder*."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.certificate, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        _openssl(
            *("req", "-x509", *KEY_TYPE, "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", self.key, "-out", self.certificate),
        )

    def identity(self, name: str, *, host: str = "127.0.0.1", days: int = 2) -> Identity:
        """Return an identity for *name* at *host*, signed by an authority below this one.

        With negative *days* it has expired.
        """
        below = self._sign(f"below-{name}", self.certificate, self.key, "CA:TRUE", host, 2)
        made = self._sign(name, below.certificate, below.key, "CA:FALSE", host, days)
        made.certificate.write_text(made.certificate.read_text() + below.certificate.read_text())
        return made

    def truststore(self, kind: str, password: str = STORE_PASSWORD) -> Path:
        """Return a truststore with this authority, of *kind* JKS or PKCS12."""
        store = self.folder / f"trusted.{kind.lower()}"
        store.unlink(missing_ok=True)
        keytool(
            *("-importcert", "-file", self.certificate, "-alias", "authority", "-noprompt"),
            *("-keystore", store, "-storetype", kind, "-storepass:env", "STORE_PASSWORD"),
            password=password,
        )
        return store

    def _sign(
        self, name: str, by: Path, key: Path, constraint: str, host: str, days: int
    ) -> Identity:
        made = Identity(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        kind = "IP" if host[0].isdigit() else "DNS"
        extensions.write_text(f"basicConstraints={constraint}\nsubjectAltName={kind}:{host}\n")
        _openssl(
            *("req", "-new", *KEY_TYPE, "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", made.key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", by, "-CAkey", key, "-CAcreateserial"),
            *("-days", str(days), "-extfile", extensions, "-out", made.certificate),
        )
        return made


def keytool(*arguments: str | Path, password: str = STORE_PASSWORD) -> str:
    """Run Java's `keytool`; the password is in the variable STORE_PASSWORD."""
    return _run(java().with_name("keytool"), *arguments, password=password)


def _openssl(*arguments: str | Path, password: str = STORE_PASSWORD) -> str:
    return _run("openssl", *arguments, password=password)


def _run(program: str | Path, *arguments: str | Path, password: str) -> str:
    done = subprocess.run(
        [str(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "STORE_PASSWORD": password},
    )
    if done.returncode != 0:
        raise RuntimeError(f"{Path(program).name}: {done.stdout}{done.stderr}")
    return done.stdout
