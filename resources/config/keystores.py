"""Read Java's key stores and trust stores as PEM, in memory: librdkafka reads no JKS.

`cryptography` reads the key of a PKCS12 file. Java's `keytool` converts JKS to PKCS12 and lists
trusted certificates, which Java marks in PKCS12 with its own attribute. No command line has a
password.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from resources.java import java
from schemas.errors.environment import JavaMissingError

JKS_MAGIC, PKCS12_MAGIC = b"\xfe\xed\xfe\xed", b"\x30"  # the latter is an ASN.1 sequence
TRUSTED = re.compile(
    r"^Entry type: trustedCertEntry\s+(-----BEGIN.*?-----END CERTIFICATE-----\n)",
    re.MULTILINE | re.DOTALL,
)
KEYTOOL_TIMEOUT_S = 60


@dataclass(frozen=True)
class KeyStore:
    """The trusted certificates of a store, or its first key with its *chain*, in PEM."""

    trusted: str = ""
    chain: str = ""
    key: str = field(default="", repr=False)


def read_store(path: Path, password: str, key_password: str | None = None) -> KeyStore:
    """Return the trusted certificates of the JKS or PKCS12 file at *path*, or its key.

    The key is read if *key_password* is not None. An empty *password* means no password, an empty
    *key_password* means the store's. PKCS12 has one password for both.
    Raises ValueError, without any secret, if the file cannot be read; JavaMissingError.
    """
    try:
        changed = path.stat()
        with path.open("rb") as file:
            start = file.read(len(JKS_MAGIC))
    except OSError as failure:
        raise ValueError(f"{path} cannot be read: {failure.strerror}") from None
    is_jks = start == JKS_MAGIC
    if not is_jks and not start.startswith(PKCS12_MAGIC):
        raise ValueError(f"{path} is neither JKS nor PKCS12; set the type PEM for a PEM file")
    if not is_jks and not password:
        raise ValueError(f"{path} is PKCS12 and needs its password")
    found = _open(path, is_jks, password, key_password, changed.st_mtime_ns, changed.st_size)
    if isinstance(found, ValueError):
        raise found
    return found


@lru_cache(maxsize=64)
def _open(
    path: Path, is_jks: bool, password: str, key_password: str | None, _mtime_ns: int, _size: int
) -> KeyStore | ValueError:
    """Open a store once and cache it, or its error, because each key of a file needs it."""
    try:
        if key_password is None:
            listed = _keytool(path, password, ["-list", "-rfc", "-keystore", str(path)])
            return KeyStore(trusted="".join(TRUSTED.findall(listed)))
        if is_jks:
            return _key_of(path, *_as_pkcs12(path, password, key_password or password))
        return _key_of(path, path.read_bytes(), password)
    except ValueError as failure:
        return failure


def _key_of(path: Path, data: bytes, password: str) -> KeyStore:
    # Imported here because it takes 0.1 s, and most files have no key store.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as pem
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        store = load_pkcs12(data, password.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise _not_opened(path) from None
    if store.key is None or store.cert is None:
        return KeyStore()
    chain, others = [store.cert.certificate], [each.certificate for each in store.additional_certs]
    while issuer := next((each for each in others if each.subject == chain[-1].issuer), None):
        chain.append(issuer)
        others.remove(issuer)
    as_pem = pem.Encoding.PEM
    key = store.key.private_bytes(as_pem, pem.PrivateFormat.PKCS8, pem.NoEncryption()).decode()
    return KeyStore("", "".join(c.public_bytes(as_pem).decode() for c in chain), key)


def _as_pkcs12(path: Path, password: str, key_password: str) -> tuple[bytes, str]:
    """Return a JKS file as PKCS12, and the password that opens it."""
    new = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="deltamirror-") as folder:  # mode 0700
        out = Path(folder, "store.p12")
        command = ["-importkeystore", "-noprompt", "-srckeystore", str(path)]
        command += ["-destkeystore", str(out), "-deststoretype", "PKCS12"]
        command += ["-deststorepass:env", "NEW_PASSWORD"]
        _keytool(path, password, command, key_password, new)
        return out.read_bytes(), new


def _keytool(
    path: Path, password: str, command: list[str], key_password: str = "", new_password: str = ""
) -> str:
    """Return what `keytool` prints of the store at *path*. Raises ValueError, JavaMissingError."""
    tool = java().resolve().with_name("keytool")
    # keytool has no option for "no password" or for the password of every key. It reads both from
    # its input, each byte as a character.
    answers = (key_password.encode("latin-1", "replace") + b"\n") * 16
    if password:
        option = "-srcstorepass:env" if new_password else "-storepass:env"
        command = [*command, option, "STORE_PASSWORD"]
    else:
        answers = b"\n" + answers
    passwords = {"STORE_PASSWORD": password, "NEW_PASSWORD": new_password}
    try:
        done = subprocess.run(
            [str(tool), "-J-Duser.language=en", *command],
            env={**os.environ, "LC_ALL": "C.UTF-8", **passwords},
            input=answers,
            capture_output=True,
            timeout=KEYTOOL_TIMEOUT_S,
        )
    except FileNotFoundError:
        raise JavaMissingError(f"{tool}, which reads key stores, does not exist") from None
    except subprocess.TimeoutExpired:
        raise ValueError(f"{path}: keytool took more than {KEYTOOL_TIMEOUT_S} s") from None
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace")
    if b"Enter key password" in done.stderr:
        raise ValueError(f"{path}: ssl.key.password does not open its key")
    raise _not_opened(path)


def _not_opened(path: Path) -> ValueError:
    return ValueError(f"{path} is damaged, or its password is wrong")
