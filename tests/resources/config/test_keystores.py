import contextlib
import os
import re
import ssl
import subprocess

import pytest

from resources.config import keystores
from resources.config.keystores import read_store
from schemas.errors.environment import JavaMissingError
from tests.support.certificates import STORE_PASSWORD, Authority, keytool


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def client(authority):
    return authority.identity("mirror")


def ders(pem):
    """Return the certificates of *pem* as they are without its line breaks."""
    found = re.findall("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", pem, re.DOTALL)
    return [ssl.PEM_cert_to_DER_cert(each) for each in found]


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_truststore_holds_the_certificate_that_was_put_into_it(authority, kind):
    store = read_store(authority.truststore(kind), STORE_PASSWORD)

    assert ders(store.trusted) == ders(authority.certificate.read_text())
    assert store.key == ""


@pytest.mark.parametrize("kind", ["jks", "pkcs12"])
def test_the_chain_of_a_key_is_not_trusted(authority, client, kind):
    store = getattr(client, kind)()
    assert read_store(store, STORE_PASSWORD).trusted == ""

    keytool(
        *("-importcert", "-file", authority.certificate, "-alias", "authority", "-noprompt"),
        *("-keystore", store, "-storepass:env", "STORE_PASSWORD"),
    )
    trusted = read_store(store, STORE_PASSWORD).trusted
    assert ders(trusted) == ders(authority.certificate.read_text())
    assert read_store(store, STORE_PASSWORD, "").key == client.key.read_text()


@pytest.mark.parametrize("kind", ["jks", "pkcs12"])
def test_a_keystore_holds_the_key_and_every_certificate_up_to_the_authority(client, kind):
    store = read_store(getattr(client, kind)(), STORE_PASSWORD, "")

    assert store.key == client.key.read_text()
    assert ders(store.chain) == ders(client.certificate.read_text())


def test_a_pkcs12_keystore_with_old_ciphers_can_be_read(client, tmp_path):
    store = tmp_path / "old.p12"
    command = ["openssl", "pkcs12", "-export", "-legacy", "-in", client.certificate]
    command += ["-inkey", client.key, "-out", store, "-passout", "env:STORE_PASSWORD"]
    subprocess.run(command, check=True, env={**os.environ, "STORE_PASSWORD": STORE_PASSWORD})

    assert read_store(store, STORE_PASSWORD, "").key == client.key.read_text()


def test_a_key_with_its_own_password_can_be_read(client):
    store = client.jks()
    keytool(
        *("-keypasswd", "-keystore", store, "-alias", "mirror", "-storepass:env", "STORE_PASSWORD"),
        *("-keypass:env", "STORE_PASSWORD", "-new", "another"),
    )

    assert read_store(store, STORE_PASSWORD, "another").key == client.key.read_text()
    with pytest.raises(ValueError, match=r"ssl\.key\.password"):
        read_store(store, STORE_PASSWORD, "")
    with pytest.raises(ValueError, match=r"ssl\.key\.password"):
        read_store(store, STORE_PASSWORD, "hunter2")
    assert read_store(store, "", "another").key == client.key.read_text()


@pytest.mark.parametrize("password", ["grün w'=x", "пароль"])
def test_a_password_may_have_any_letters(client, monkeypatch, password):
    store = client.jks()
    monkeypatch.setenv("NEW", password)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    keytool(
        *("-storepasswd", "-keystore", store, "-storepass:env", "STORE_PASSWORD"),
        *("-new:env", "NEW"),
    )

    assert read_store(store, password, STORE_PASSWORD).key == client.key.read_text()


def test_a_truststore_in_jks_is_read_without_a_password_as_java_reads_it(authority):
    assert read_store(authority.truststore("JKS"), "").trusted


@pytest.mark.parametrize(
    ("make", "password", "why"),
    [
        pytest.param(lambda a, _: a.truststore("JKS"), "hunter2", "password is wrong", id="JKS"),
        pytest.param(
            lambda a, _: a.truststore("PKCS12"), "hunter2", "password is wrong", id="PKCS12"
        ),
        pytest.param(lambda a, _: a.truststore("PKCS12"), "", "needs its password", id="none"),
        pytest.param(lambda a, _: a.certificate, "hunter2", "set the type PEM", id="PEM"),
        pytest.param(lambda _, path: path / "no", "hunter2", "No such file", id="no file"),
    ],
)
@pytest.mark.parametrize("read", [read_store, lambda *a: read_store(*a, "")])
def test_the_error_of_an_unreadable_store_names_the_file_and_no_password(
    authority, tmp_path, make, password, why, read
):
    path = make(authority, tmp_path)

    with pytest.raises(ValueError, match=why) as error:
        read(path, password)

    assert str(path) in str(error.value)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("kept", [5, 60, 200])
def test_a_truncated_store_is_reported_as_damaged(client, tmp_path, kept):
    cut = tmp_path / "cut.jks"
    cut.write_bytes(client.jks().read_bytes()[:kept])

    with pytest.raises(ValueError, match="damaged"):
        read_store(cut, "", STORE_PASSWORD)
    with pytest.raises(ValueError, match="damaged"):
        read_store(cut, "")


@pytest.fixture
def commands(monkeypatch):
    """What is started, with its arguments."""
    started, run = [], subprocess.run

    def note(command, **options):
        started.append(list(map(str, command)))
        return run(command, **options)

    monkeypatch.setattr(keystores.subprocess, "run", note)
    return started


def listed(commands):
    return [command for command in commands if "-list" in command]


@pytest.mark.parametrize("password", [STORE_PASSWORD, "hunter2"], ids=["right", "wrong"])
def test_a_store_is_opened_once_and_again_after_it_has_changed(authority, commands, password):
    def read():
        try:
            return read_store(path, password).trusted
        except ValueError as failure:
            return str(failure)

    path = authority.truststore("PKCS12")
    assert read() == read()
    assert len(listed(commands)) == 1

    authority.truststore("PKCS12")
    read()
    assert len(listed(commands)) == 2


@pytest.mark.parametrize("password", [STORE_PASSWORD, "wrong-password"], ids=["right", "wrong"])
def test_no_password_is_in_a_command_line(authority, client, commands, password):
    read = {
        read_store: [authority.truststore("JKS"), authority.truststore("PKCS12")],
        lambda *a: read_store(*a, "key-password"): [client.jks(), client.pkcs12()],
    }
    commands.clear()
    for each, paths in read.items():
        for path in paths:
            with contextlib.suppress(ValueError):
                each(path, password)

    told = " ".join(word for command in commands for word in command)
    assert told.count("keytool") == 3  # PKCS12 keystores are read without it
    for secret in (STORE_PASSWORD, "wrong-password", "key-password"):
        assert secret not in told


def test_a_java_without_keytool_is_an_error(authority, tmp_path, monkeypatch):
    monkeypatch.setattr(keystores, "java", lambda: tmp_path / "java")

    with pytest.raises(JavaMissingError, match=r"keytool, which reads key stores, does not exist"):
        read_store(authority.truststore("JKS"), STORE_PASSWORD)


def test_a_repr_shows_no_key(client):
    assert "PRIVATE" not in repr(read_store(client.jks(), STORE_PASSWORD, ""))
