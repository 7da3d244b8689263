"""What is wrong with a configuration file or with what was asked for."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.errors.base import ConfigError


class ConfigFileError(ConfigError):
    """The configuration file cannot be read."""

    hint = "Name the file with --config or DELTAMIRROR_CONFIG; mm2.properties is an example."

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path}: {why}")


class UnknownKeyError(ConfigError):
    """The file holds a key that nobody reads."""

    def __init__(self, key: str, nearest: str | None) -> None:
        super().__init__(f"{key} is not a key of mm2.properties")
        self.hint = (
            f"Did you mean {nearest}?" if nearest else "docs/configuration.md lists every key."
        )


class RefusedKeyError(ConfigError):
    """The file asks for something that is not done here, or says it in a way that cannot be read.

    The message never holds the value where the key's name says that it is a secret.
    """

    hint = "`deltamirror config check` lists every key of the file with what becomes of it."

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")


class InvalidKeysError(ConfigError):
    """Several keys of the file are refused, unknown or missing; the message lists all of them."""

    hint = RefusedKeyError.hint

    def __init__(self, path: object, told: Sequence[str]) -> None:
        super().__init__(f"{path}: {len(told)} keys are wrong: {'; '.join(told)}")


class ClientSettingsError(ConfigError):
    """The Kafka client does not take what the file says of a cluster."""

    hint = "Correct what the file says of this cluster; docs/security.md says what each way needs."

    def __init__(self, alias: str, why: str) -> None:
        super().__init__(f"cluster {alias}: {why}")


class InvalidPatternError(ConfigError):
    """A regular expression that cannot be read."""

    hint = (
        "Java and Python differ in \\p{..}, \\Q..\\E, nested classes and (before Python 3.11) "
        "possessive quantifiers; a comma separates entries and cannot stand inside of one."
    )

    def __init__(self, pattern: str, why: str) -> None:
        super().__init__(f"the regular expression {pattern} cannot be read: {why}")


class UnknownAliasError(ConfigError):
    """A flow or a key names a cluster that the file does not list."""

    hint = "Add the alias to `clusters` and give it bootstrap.servers, or correct the flow's name."

    def __init__(self, where: str, alias: str, known: Sequence[str]) -> None:
        super().__init__(f"{where}: no cluster {alias} (clusters: {', '.join(known)})")


class UnknownFlowError(ConfigError):
    """A flow was named that is not enabled."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no enabled flow {name}")
        self.hint = (
            f"Enabled flows: {', '.join(known)}."
            if known
            else f"Write {name}.enabled=true into the configuration file."
        )


class SecretError(ConfigError):
    """A `${provider:path:key}` in the file leads to nothing."""

    hint = "Set the variable or write the file where this process runs; or correct the reference."

    def __init__(self, key: str, reference: str, why: str) -> None:
        super().__init__(f"{key}: {reference} cannot be resolved: {why}")
