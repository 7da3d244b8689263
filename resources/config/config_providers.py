"""Resolve references to secrets: `${env:NAME}`, `${file:path:key}`, `${dir:path:file}`.

These are Kafka's three config providers. The names env, file and dir need no declaration; other
names are declared as in MirrorMaker 2 (`config.providers`). Values are never logged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from resources.config import properties_file as properties
from schemas.config.keys import split_list
from schemas.errors.base import ConfigError
from schemas.errors.configuration import SecretError

REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
CLASSES = {
    "EnvVarConfigProvider": "env",
    "FileConfigProvider": "file",
    "DirectoryConfigProvider": "dir",
}
CLASS_PREFIX = "org.apache.kafka.common.config.provider."

Params = Mapping[str, str]


def provider_of(class_name: str) -> str | None:
    """Return the provider of a Java class: env, file or dir; None for any other class."""
    return CLASSES.get(class_name.strip().removeprefix(CLASS_PREFIX))


def resolve(
    entries: Mapping[str, str], base: Path
) -> tuple[dict[str, str], dict[str, SecretError]]:
    """Return *entries* with every reference replaced, and the errors of failed ones by key.

    A relative path in a reference starts at *base*, the folder of the configuration file.
    """
    values: dict[str, str] = {}
    failures: dict[str, SecretError] = {}
    for key, written in entries.items():
        try:
            values[key] = REFERENCE.sub(partial(_look_up, key, entries, base), written)
        except SecretError as failure:
            values[key] = written
            failures[key] = failure
    return values, failures


def _look_up(key: str, entries: Mapping[str, str], base: Path, found: re.Match[str]) -> str:
    name, path, item = found.group(1), found.group(2) or "", found.group(3)
    declared = name in split_list(entries.get("config.providers", ""))
    java_class = entries.get(f"config.providers.{name}.class", "") if declared else ""
    kind = provider_of(java_class) if java_class else name
    provider = PROVIDERS.get(kind or "")
    prefix = f"config.providers.{name}.param."
    params = {k[len(prefix) :]: v for k, v in entries.items() if k.startswith(prefix)}
    try:
        if provider is None:
            raise LookupError("the providers are env, file and dir")
        return provider(base / path, item, params)
    except LookupError as missing:
        reason = str(missing.args[0])
    except OSError as failure:
        reason = failure.strerror or "it cannot be read"
    except (ConfigError, ValueError):
        reason = "the file cannot be read as text"
    raise SecretError(key, reference=found.group(), reason=reason)


def _from_environment(_path: Path, name: str, params: Params) -> str:
    if not re.fullmatch(params.get("allowlist.pattern", ".*"), name):
        raise LookupError("allowlist.pattern does not allow this variable")
    if name not in os.environ:
        raise LookupError("this variable is not set in the environment")
    return os.environ[name]


def _from_file(path: Path, key: str, params: Params) -> str:
    _check_allowed(path, params)
    # Kafka reads this file as UTF-8, unlike the configuration itself.
    entries = properties.parse(path.read_text(encoding="utf-8"))
    if key not in entries:
        raise LookupError("the file does not have this key")
    return entries[key].value


def _from_directory(path: Path, name: str, params: Params) -> str:
    _check_allowed(path / name, params)
    if (path / name).resolve().parent != path.resolve():
        raise LookupError("the file is outside of the directory")
    return (path / name).read_text(encoding="utf-8")


def _check_allowed(path: Path, params: Params) -> None:
    allowed = split_list(params.get("allowed.paths", ""))
    if allowed and not any(path.resolve().is_relative_to(Path(each).resolve()) for each in allowed):
        raise LookupError("allowed.paths does not allow this path")


PROVIDERS: Mapping[str, Callable[[Path, str, Params], str]] = {
    "env": _from_environment,
    "file": _from_file,
    "dir": _from_directory,
}
