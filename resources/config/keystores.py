"""Java's keystores and truststores in, PEM out, in memory: librdkafka reads no other.

JKS, Java's own format, is read here. PKCS12 is first turned into JKS by Java's `keytool`, which
opens every one that Java opens, also those with ciphers that OpenSSL has given up. Nothing stays
on the disk and no password is in a command line.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import struct
import subprocess
import tempfile
import textwrap
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from resources.java import java

JKS_MAGIC = b"\xfe\xed\xfe\xed"
PKCS12_MAGIC = b"\x30"  # an ASN.1 sequence
KEY, TRUSTED = 1, 2  # what an entry of a JKS is
SHA1_LENGTH = 20  # bytes of SHA-1
KEYTOOL_TIMEOUT_S = 60


@dataclass(frozen=True)
class Keystore:
    """What a store holds, in PEM: *trusted* certificates; the first key and its *chain*."""

    trusted: str
    chain: str
    key: str = field(repr=False)


def read_store(path: Path, password: str, key_password: str) -> Keystore:
    """Return what the JKS or PKCS12 file at *path* holds. An empty *password* is none.

    Raises ValueError, without any secret, where it cannot be read; JavaMissingError.
    """
    try:
        changed = path.stat()
    except OSError as failure:
        raise ValueError(f"{path} cannot be read: {failure.strerror}") from None
    return _read(path, password, key_password, changed.st_mtime_ns, changed.st_size)


@lru_cache(maxsize=64)
def _read(path: Path, password: str, key_password: str, _mtime_ns: int, _size: int) -> Keystore:
    """Read the store; a file is asked for once for each client and each key of the file."""
    try:
        data = path.read_bytes()
    except OSError as failure:
        raise ValueError(f"{path} cannot be read: {failure.strerror}") from None
    if data.startswith(PKCS12_MAGIC):
        key_password = password  # PKCS12 has one for both, and keytool keeps the key's
        data, password = _convert_to_jks(path, password)
    elif not data.startswith(JKS_MAGIC):
        raise ValueError(f"{path} is neither JKS nor PKCS12; of a PEM file the type is PEM")
    return _Jks(data, password, key_password or password).read(path)


def _convert_to_jks(path: Path, password: str) -> tuple[bytes, str]:
    """Return a PKCS12 file as JKS, and the password that opens that."""
    if not password:
        raise ValueError(f"{path} is PKCS12: it needs its password")
    new_password = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="deltamirror-") as folder:  # for its owner alone
        out = Path(folder, "store.jks")
        command = [str(java().resolve().with_name("keytool")), "-importkeystore", "-noprompt"]
        command += ["-srckeystore", str(path), "-srcstoretype", "PKCS12"]
        command += ["-srcstorepass:env", "DELTAMIRROR_FROM", "-destkeystore", str(out)]
        command += ["-deststoretype", "JKS", "-deststorepass:env", "DELTAMIRROR_TO"]
        passwords = {"DELTAMIRROR_FROM": password, "DELTAMIRROR_TO": new_password}
        done = subprocess.run(
            command,
            env={**os.environ, **passwords},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=KEYTOOL_TIMEOUT_S,
        )
        if done.returncode != 0 or not out.exists():
            raise ValueError(f"{path} is not opened by its password, or damaged")
        return out.read_bytes(), new_password


class _Jks:
    """A JKS file's bytes, read from front to back. All numbers are big-endian."""

    def __init__(self, data: bytes, password: str, key_password: str) -> None:
        self._data, self._at = data, len(JKS_MAGIC)
        self._password, self._key_password = password, key_password

    def read(self, path: Path) -> Keystore:
        """Return what it holds. Raises ValueError, which names *path*."""
        sealed, seal = self._data[:-SHA1_LENGTH], self._data[-SHA1_LENGTH:]
        salted = self._password.encode("utf-16-be") + b"Mighty Aphrodite" + sealed
        # As Java: without a password nobody checks that the file is whole.
        if self._password and hashlib.sha1(salted).digest() != seal:
            raise ValueError(f"{path} is not opened by its password, or damaged")
        try:
            return self._entries()
        except (struct.error, IndexError):
            raise ValueError(f"{path} is damaged") from None
        except ValueError:
            raise ValueError(f"{path}: its key is not opened by ssl.key.password") from None

    def _entries(self) -> Keystore:
        trusted, chain, key = "", "", ""
        version, count = self._number(), self._number()
        for _ in range(count):
            kind = self._number()
            self._text()  # the alias
            self._at += 8  # when it was made
            if kind == TRUSTED:
                trusted += self._certificate(version)
                continue
            found = self._bytes(self._number())
            certificates = [self._certificate(version) for _ in range(self._number())]
            if not key:
                chain = "".join(certificates)
                key = _pem("PRIVATE KEY", _decrypt_key(found, self._key_password))
        return Keystore(trusted, chain, key)

    def _certificate(self, version: int) -> str:
        if version == 2:
            self._text()  # its type, X.509
        return _pem("CERTIFICATE", self._bytes(self._number()))

    def _number(self) -> int:
        (number,) = struct.unpack(">I", self._bytes(4))
        return int(number)

    def _text(self) -> None:
        (length,) = struct.unpack(">H", self._bytes(2))
        self._at += length

    def _bytes(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        return self._data[start : self._at]


def _decrypt_key(locked: bytes, password: str) -> bytes:
    """Return the key, as PKCS8, that JKS protects: salt, key masked by SHA-1s, SHA-1.

    Raises ValueError where *password* does not fit.
    """
    protected = _last_value(locked)
    salt, masked, seal = (
        protected[:SHA1_LENGTH],
        protected[SHA1_LENGTH:-SHA1_LENGTH],
        protected[-SHA1_LENGTH:],
    )
    secret = password.encode("utf-16-be")
    mask, digest = b"", salt
    while len(mask) < len(masked):
        digest = hashlib.sha1(secret + digest).digest()
        mask += digest
    key = bytes(a ^ b for a, b in zip(masked, mask, strict=False))
    if hashlib.sha1(secret + key).digest() != seal:
        raise ValueError("the password does not fit")
    return key


def _last_value(der: bytes) -> bytes:
    """Return the second value of an ASN.1 sequence of two: behind the algorithm, the key."""
    start, _ = _content(der, 0)
    _, end = _content(der, start)
    start, end = _content(der, end)
    return der[start:end]


def _content(der: bytes, at: int) -> tuple[int, int]:
    """Return where the content of the ASN.1 element at *at* starts and ends."""
    length, start = der[at + 1], at + 2
    if length >= 0x80:
        digits = length - 0x80
        length = int.from_bytes(der[start : start + digits], "big")
        start += digits
    return start, start + length


def _pem(what: str, der: bytes) -> str:
    lines = textwrap.fill(base64.b64encode(der).decode(), 64)
    return f"-----BEGIN {what}-----\n{lines}\n-----END {what}-----\n"
