"""Translate Java client properties to librdkafka's settings, with a check of each property."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from resources.config.security import translate_security
from schemas.config.client_keys import LIBRDKAFKA_BOUNDS, ClientKey, client_key, is_connection_key
from schemas.config.config import ClientSettings
from schemas.config.keys import KeyCheck, KeyStatus
from schemas.errors.configuration import RefusedKeyError

Value = str | int | float | bool

# Java checks every record's CRC by default; librdkafka does not.
DEFAULTS: Mapping[str, ClientSettings] = {"consumer": {"check.crcs": True}}
KIB = 1024
FIRST_BACKOFF_MS, MAX_BACKOFF_MS = 50, 1_000  # Java's defaults: librdkafka's longest is 10 s


@dataclass
class TranslatedSettings:
    """librdkafka's settings (they hold secrets) and a check for each Java property."""

    settings: dict[str, Value] = field(repr=False)
    checks: dict[str, KeyCheck]


def translate_settings(role: str, java: Mapping[str, str]) -> TranslatedSettings:
    """Return the settings of a `consumer`, `producer` or `admin` with the properties *java*.

    Nothing is raised: an unsupported property or value is `refused`. A property that Java does not
    know has no check.
    """
    settings = dict(DEFAULTS.get(role, {}))
    checks: dict[str, KeyCheck] = {}
    for name, value in java.items():
        key = client_key(role, name)
        if key is not None:
            try:
                checks[name] = _translate_key(key, value.strip(), java, settings)
            except ValueError as failure:
                checks[name] = KeyCheck(name, KeyStatus.REFUSED, str(failure))
    connection = {name: value for name, value in java.items() if is_connection_key(name)}
    security = translate_security(connection)
    _fit_fetch_sizes(role, settings)
    _fit_backoff(settings)
    return TranslatedSettings({**settings, **security.settings}, {**checks, **security.checks})


def client_settings(role: str, java: Mapping[str, str], where: str) -> ClientSettings:
    """Return only the settings. Raises RefusedKeyError, with the prefix *where* for the key."""
    translation = translate_settings(role, java)
    for check in translation.checks.values():
        if check.status is KeyStatus.REFUSED:
            raise RefusedKeyError(f"{where}{check.key}", reason=check.note)
    return translation.settings


def _translate_key(
    key: ClientKey, value: str, java: Mapping[str, str], settings: dict[str, Value]
) -> KeyCheck:
    """Translate *key* into *settings*, and return its check. Raises ValueError for a bad value."""
    java_value = key.read(value)
    if key.name == "isolation.level":
        status = KeyStatus.HONOURED if value == "read_committed" else KeyStatus.NO_EFFECT
        note = "The source is always read with read_committed. Aborted records are not replicated."
        return KeyCheck(key.name, status, note)
    if key.name == "auto.offset.reset":
        note = "Where staging of a topic starts when it is first selected."
        return KeyCheck(key.name, KeyStatus.HONOURED, note)
    if not key.librdkafka:
        return KeyCheck(key.name, KeyStatus.NO_EFFECT, key.note)
    if key.librdkafka == "compression.level":
        codec = key.name.split(".")[1]
        if java.get("compression.type", "none").strip() != codec:
            return KeyCheck(key.name, KeyStatus.NO_EFFECT, f"compression.type is not {codec}.")
    settings[key.librdkafka] = taken = _librdkafka_value(key, java_value)
    if key.librdkafka == key.name and taken == java_value:
        return KeyCheck(key.name, KeyStatus.HONOURED, f"librdkafka: {key.librdkafka}")
    return KeyCheck(key.name, KeyStatus.TRANSLATED, f"librdkafka: {key.librdkafka}={taken}")


def _librdkafka_value(key: ClientKey, value: str | int | bool) -> str | int | bool:
    """Return librdkafka's value for Java's *value*, which is the nearest one for a number.

    Java's -1 for a buffer (the system's size) and for idle connections (kept) is librdkafka's 0.
    """
    if isinstance(value, bool | str):
        return value
    least, most = LIBRDKAFKA_BOUNDS[key.librdkafka]
    number = value // KIB if key.name == "buffer.memory" else value
    return min(max(number, least), most)


def _fit_backoff(settings: dict[str, Value]) -> None:
    """Limit the first backoff to the longest one: librdkafka requires it, and Java does it."""
    first, longest = (settings.get(f"reconnect.backoff.{each}") for each in ("ms", "max.ms"))
    if not isinstance(longest, int):  # in Java, a first one alone is the longest, too
        longest = first if isinstance(first, int) else MAX_BACKOFF_MS
    first = first if isinstance(first, int) else FIRST_BACKOFF_MS
    settings["reconnect.backoff.ms"] = min(first, longest)
    settings["reconnect.backoff.max.ms"] = longest


def _fit_fetch_sizes(role: str, settings: dict[str, Value]) -> None:
    """Lower message.max.bytes (1,000,000) to a smaller fetch.max.bytes; librdkafka requires it."""
    fetch = settings.get("fetch.max.bytes")
    if role == "consumer" and isinstance(fetch, int) and fetch < 1_000_000:
        settings["message.max.bytes"] = fetch
