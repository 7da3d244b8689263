"""Errors of the configuration file and of arguments. All of them end a command with code 2."""

from schemas.errors.base import ConfigError


class ConfigFileError(ConfigError):
    """The configuration file cannot be read."""

    message = "{path}: {reason}"
    hint = "Name the file with --config or DELTAMIRROR_CONFIG. mm2.properties is an example."


class UnknownKeyError(ConfigError):
    """The file has a key that is not supported. The hint names the nearest supported key."""

    message = "{key} is not a key of mm2.properties"
    hint = "docs/configuration.md lists every key."


class RefusedKeyError(ConfigError):
    """A key requests something that is not supported, or its value is invalid.

    The message never holds the value of a key whose name marks a secret.
    """

    message = "{key}: {reason}"
    hint = "Run `deltamirror config check` to see how each key of the file is used."


class InvalidKeysError(ConfigError):
    """Several keys of the file are refused, unknown or missing. The message lists all of them."""

    message = "{path}: {count} keys are wrong: {errors}"
    hint = RefusedKeyError.hint


class ClientSettingsError(ConfigError):
    """The Kafka client refuses a cluster's settings."""

    message = "cluster {alias}: {reason}"
    hint = "Correct the cluster's keys in the file. docs/security.md lists the keys of each login."


class InvalidPatternError(ConfigError):
    """A regular expression is invalid in Python."""

    message = "the regular expression {pattern} cannot be read: {reason}"
    hint = (
        "Java and Python differ in \\p{{..}}, \\Q..\\E, nested classes and (before Python 3.11) "
        "possessive quantifiers. A comma separates entries, so an entry cannot contain one."
    )


class UnknownAliasError(ConfigError):
    """A flow or a key names a cluster that `clusters` does not list."""

    message = "{name}: no cluster {alias} (clusters: {known})"
    hint = "Add the alias to `clusters` and set its bootstrap.servers, or correct the flow's name."


class UnknownFlowError(ConfigError):
    """A flow is not enabled. The hint lists the enabled flows."""

    message = "there is no enabled flow {name}"
    hint = "Set {name}.enabled=true in the configuration file."


class SecretError(ConfigError):
    """A reference `${provider:path:key}` in the file cannot be resolved."""

    message = "{key}: {reference} cannot be resolved: {reason}"
    hint = "Set the variable or create the file on the machine that runs this, or correct the key."
