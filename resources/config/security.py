"""Translate Java's security.protocol, ssl.* and sasl.* to librdkafka's. No note holds a secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from resources.config import jaas
from resources.config.keystores import read_store
from schemas.config.client_keys import NO_EFFECT_CONNECTION_KEYS, REFUSED_CONNECTION_KEYS
from schemas.config.keys import KeyCheck, KeyStatus, check_list, split_list

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NO_KERBEROS = "the Kafka client has no Kerberos: use SCRAM, PLAIN, OAUTHBEARER or TLS"
NO_SERVERS = "every cluster needs it"
OIDC = {
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
}
TOKEN_CLASSES = {
    "sasl.login.callback.handler.class": ("OAuthBearerLoginCallbackHandler",),
    "sasl.oauthbearer.jwt.retriever.class": (
        "DefaultJwtRetriever",
        "ClientCredentialsJwtRetriever",
    ),
}


@dataclass
class Security:
    """librdkafka's security settings (they hold secrets) and a check for each Java property."""

    java: Mapping[str, str] = field(repr=False)
    settings: dict[str, str] = field(default_factory=dict, repr=False)
    checks: dict[str, KeyCheck] = field(default_factory=dict)

    def get(self, name: str) -> str:
        return self.java.get(name, "").strip()

    def put(self, java: str, setting: str, value: str) -> None:
        """Set *setting* to the value of the Java property *java*."""
        self.settings[setting] = value
        status = KeyStatus.HONOURED if java == setting else KeyStatus.TRANSLATED
        self.checks[java] = KeyCheck(java, status, f"librdkafka: {setting}")

    def note(self, status: KeyStatus, name: str, note: str) -> None:
        """Check *name* if the file has it. The settings do not change."""
        if name in self.java:
            self.checks[name] = KeyCheck(name, status, note)

    def set_refused(self, name: str, note: str) -> None:
        """Refuse *name*, even if it is missing in the file."""
        self.checks[name] = KeyCheck(name, KeyStatus.REFUSED, note)

    @contextmanager
    def refusing(self, name: str) -> Iterator[None]:
        """Refuse *name* if the block raises ValueError."""
        try:
            yield
        except ValueError as failure:
            self.set_refused(name, str(failure))


def translate_security(java: Mapping[str, str]) -> Security:
    """Translate the connection properties *java*. An unknown property has no check."""
    out = Security(java)
    for name in java:
        if name in NO_EFFECT_CONNECTION_KEYS:
            out.note(KeyStatus.NO_EFFECT, name, NO_EFFECT_CONNECTION_KEYS[name].split(": ", 1)[1])
        elif name in REFUSED_CONNECTION_KEYS:
            out.set_refused(name, REFUSED_CONNECTION_KEYS[name])
    _servers(out)
    _protocol(out)
    _sasl(out)
    _trust(out)
    _identity(out)
    _checks(out)
    return out


def _servers(out: Security) -> None:
    name = "bootstrap.servers"
    if name in out.java:
        with out.refusing(name):
            check_list(out.java[name])
            if not out.get(name):
                raise ValueError(NO_SERVERS)
            out.put(name, name, ",".join(split_list(out.java[name])))


def _protocol(out: Security) -> None:
    protocol = out.get("security.protocol").upper()
    if protocol in PROTOCOLS:
        out.put("security.protocol", "security.protocol", protocol)
        if protocol.startswith("SASL_") and not out.get("sasl.mechanism"):
            out.set_refused("sasl.mechanism", f"Java's default is GSSAPI, but {NO_KERBEROS}")
    elif protocol:
        out.set_refused("security.protocol", f"it must be one of {', '.join(PROTOCOLS)}")


def _sasl(out: Security) -> None:
    mechanism = out.get("sasl.mechanism")
    if mechanism in MECHANISMS:
        out.put("sasl.mechanism", "sasl.mechanism", mechanism)
    elif mechanism:
        why = NO_KERBEROS if mechanism == "GSSAPI" else f"it must be {', '.join(MECHANISMS)}"
        out.set_refused("sasl.mechanism", why)
    if out.get("sasl.jaas.config"):
        with out.refusing("sasl.jaas.config"):
            _log_in(out, jaas.parse(out.get("sasl.jaas.config")))
    if mechanism == "OAUTHBEARER":
        _oidc(out)
    else:
        for name in (*OIDC, "sasl.oauthbearer.token.endpoint.url"):
            out.note(KeyStatus.NO_EFFECT, name, "sasl.mechanism is not OAUTHBEARER.")
    _token_classes(out)


def _log_in(out: Security, module: jaas.LoginModule) -> None:
    """Translate the login *module*. Raises ValueError if it is not supported."""
    match module.name:
        case "PlainLoginModule" | "ScramLoginModule":
            if module.options.get("tokenauth", "false").lower() == "true":
                raise ValueError("librdkafka has no delegation tokens: use the password of a user")
            if not {"username", "password"} <= module.options.keys():
                raise ValueError("the login module needs a username and a password")
            out.put("sasl.jaas.config", "sasl.username", module.options["username"])
            out.put("sasl.jaas.config", "sasl.password", module.options["password"])
            note = "librdkafka: sasl.username, sasl.password"
        case "OAuthBearerLoginModule":
            _log_in_oidc(out, module)
            note = "librdkafka: sasl.oauthbearer.client.id, .client.secret, .scope, .extensions"
        case "Krb5LoginModule":
            raise ValueError(NO_KERBEROS)
        case _:
            raise ValueError("this login module is a Java class, which cannot be used here")
    out.note(KeyStatus.TRANSLATED, "sasl.jaas.config", note)


def _log_in_oidc(out: Security, module: jaas.LoginModule) -> None:
    names = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
    extensions = []
    for option, value in module.options.items():
        if option in names:
            out.settings[f"sasl.oauthbearer.{names[option]}"] = value
        elif option.startswith("extension_"):
            extensions.append(f"{option.removeprefix('extension_')}={value}")
        else:
            supported = "clientId, clientSecret, scope and extension_*"
            raise ValueError(f"OAuthBearerLoginModule supports {supported}")
    if extensions:
        out.settings["sasl.oauthbearer.extensions"] = ",".join(extensions)


def _oidc(out: Security) -> None:
    endpoint = "sasl.oauthbearer.token.endpoint.url"
    if not out.get(endpoint):
        out.set_refused(endpoint, "OAUTHBEARER needs it to fetch tokens (OIDC)")
        return
    out.put(endpoint, endpoint, out.get(endpoint))
    out.settings["sasl.oauthbearer.method"] = "oidc"
    for java, setting in OIDC.items():
        if java in out.java:
            out.put(java, setting, out.get(java))


def _token_classes(out: Security) -> None:
    """Accept Java's classes that fetch a token with a client id and secret: OIDC does the same."""
    for name, classes in TOKEN_CLASSES.items():
        if out.get(name).rpartition(".")[2] in classes:
            out.note(KeyStatus.NO_EFFECT, name, "OIDC needs no class here.")
        elif out.get(name):
            why = "a Java class cannot be used here: use OIDC's client id and secret"
            out.set_refused(name, why)
        else:
            out.note(KeyStatus.NO_EFFECT, name, "It is empty.")


def _trust(out: Security) -> None:
    """Translate the trusted certificates: a PEM file, inline PEM, or a store."""
    location, certificates = "ssl.truststore.location", "ssl.truststore.certificates"
    password = "ssl.truststore.password"
    out.note(KeyStatus.HONOURED, "ssl.truststore.type", "The format of the truststore.")
    out.note(KeyStatus.NO_EFFECT, password, "A PEM file has no password.")
    if out.get(certificates):
        out.put(certificates, "ssl.ca.pem", out.get(certificates))
    if not out.get(location):
        return
    if out.get("ssl.truststore.type").upper() == "PEM":
        _put_file(out, location, "ssl.ca.location")
        return
    out.note(KeyStatus.HONOURED, password, "It opens the truststore.")
    with out.refusing(location):
        trusted = read_store(Path(out.get(location)), out.java.get(password, "")).trusted
        if not trusted:
            raise ValueError("it has no trusted certificate")
        out.put(location, "ssl.ca.pem", trusted)


def _identity(out: Security) -> None:
    """Translate the client's certificate and key: a PEM file, inline PEM, or a store."""
    location, kind = "ssl.keystore.location", out.get("ssl.keystore.type").upper()
    password, key_password = "ssl.keystore.password", "ssl.key.password"
    chain, key = "ssl.keystore.certificate.chain", "ssl.keystore.key"
    out.note(KeyStatus.HONOURED, "ssl.keystore.type", "The format of the keystore.")
    out.note(KeyStatus.NO_EFFECT, password, "A PEM file has no password.")
    out.note(KeyStatus.NO_EFFECT, key_password, "There is no encrypted key.")
    for java, setting in ((chain, "ssl.certificate.pem"), (key, "ssl.key.pem")):
        if out.get(java):
            out.put(java, setting, out.get(java))
    pem = bool(out.get(key))
    if out.get(location) and kind == "PEM":
        pem = True
        _put_file(out, location, "ssl.certificate.location")
        out.settings["ssl.key.location"] = out.get(location)
    elif out.get(location):
        _put_keystore(out, location, password, key_password)
    if pem and out.get(key_password):
        out.put(key_password, key_password, out.java[key_password])


def _put_file(out: Security, location: str, setting: str) -> None:
    """Set *setting* to the file at *location*. Refuse a file that cannot be read."""
    try:
        Path(out.get(location)).open("rb").close()
    except OSError as failure:
        out.set_refused(location, f"{out.get(location)} cannot be read: {failure.strerror}")
    else:
        out.put(location, setting, out.get(location))


def _put_keystore(out: Security, location: str, password: str, key_password: str) -> None:
    """Set certificate and key from the store at *location*. Refuse a store without a key."""
    for name in (password, key_password):
        out.note(KeyStatus.HONOURED, name, "It opens the keystore.")
    passwords = (out.java.get(password, ""), out.java.get(key_password, ""))
    with out.refusing(location):
        store = read_store(Path(out.get(location)), *passwords)
        if not store.key:
            raise ValueError("it has no key")
        out.settings |= {"ssl.certificate.pem": store.chain, "ssl.key.pem": store.key}
        out.note(KeyStatus.TRANSLATED, location, "librdkafka: ssl.certificate.pem, ssl.key.pem")


def _checks(out: Security) -> None:
    """Translate host name verification and cipher suites."""
    algorithm, suites = "ssl.endpoint.identification.algorithm", "ssl.cipher.suites"
    if algorithm in out.java:
        out.put(algorithm, algorithm, out.get(algorithm).lower() or "none")
    older = ":".join(filter(None, map(_openssl_name, split_list(out.get(suites)))))
    if older:
        out.put(suites, suites, older)
    else:
        why = "TLS 1.3 has its own suites, which are always allowed."
        out.note(KeyStatus.NO_EFFECT, suites, why)


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite: `ECDHE-RSA-AES128-GCM-SHA256`. Empty for TLS 1.3's."""
    exchange, found, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not found:
        return "" if suite.startswith("TLS_") else suite
    if cipher.startswith("CHACHA20"):
        cipher = cipher.removesuffix("_SHA256")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    prefix = "" if exchange == "RSA" else f"{exchange}-"
    return f"{prefix}{cipher}".replace("_", "-")
