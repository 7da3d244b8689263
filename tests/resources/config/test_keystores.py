import re
import ssl

import pytest

from resources.config import keystores
from resources.config.keystores import read_store
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
    store = read_store(authority.truststore(kind), STORE_PASSWORD, "")

    assert ders(store.trusted) == ders(authority.certificate.read_text())
    assert store.key == ""


@pytest.mark.parametrize("kind", ["jks", "pkcs12"])
def test_a_keystore_holds_the_key_and_every_certificate_up_to_the_authority(client, kind):
    store = read_store(getattr(client, kind)(), STORE_PASSWORD, "")

    assert store.key == client.key.read_text()
    assert ders(store.chain) == ders(client.certificate.read_text())


def test_a_key_of_its_own_password_is_opened_by_that_one(client):
    store = client.jks()
    keytool(
        *("-keypasswd", "-keystore", store, "-alias", "mirror", "-storepass:env", "STORE_PASSWORD"),
        *("-keypass:env", "STORE_PASSWORD", "-new", "another"),
    )

    assert read_store(store, STORE_PASSWORD, "another").key == client.key.read_text()
    with pytest.raises(ValueError, match=r"ssl\.key\.password"):
        read_store(store, STORE_PASSWORD, "")


def test_a_truststore_in_jks_is_read_without_a_password_as_java_reads_it(authority):
    assert read_store(authority.truststore("JKS"), "", "").trusted


@pytest.mark.parametrize(
    ("make", "password", "why"),
    [
        pytest.param(lambda a, _: a.truststore("JKS"), "hunter2", "not opened", id="JKS"),
        pytest.param(lambda a, _: a.truststore("PKCS12"), "hunter2", "not opened", id="PKCS12"),
        pytest.param(lambda a, _: a.truststore("PKCS12"), "", "needs its password", id="none"),
        pytest.param(lambda a, _: a.certificate, "hunter2", "the type is PEM", id="PEM"),
        pytest.param(lambda _, path: path / "no", "hunter2", "No such file", id="no file"),
    ],
)
def test_what_cannot_be_opened_is_named_without_a_password(
    authority, tmp_path, make, password, why
):
    path = make(authority, tmp_path)

    with pytest.raises(ValueError, match=why) as error:
        read_store(path, password, "")

    assert str(path) in str(error.value)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("kept", [5, 60, 200])
def test_a_store_that_was_cut_off_is_damaged(client, tmp_path, kept):
    cut = tmp_path / "cut.jks"
    cut.write_bytes(client.jks().read_bytes()[:kept])

    with pytest.raises(ValueError, match="damaged"):
        read_store(cut, "", STORE_PASSWORD)


def test_a_store_is_opened_once_and_again_when_it_has_changed(authority, monkeypatch):
    path = authority.truststore("PKCS12")
    opened = []
    as_jks = keystores._convert_to_jks
    monkeypatch.setattr(keystores, "_convert_to_jks", lambda *a: opened.append(a) or as_jks(*a))

    read_store(path, STORE_PASSWORD, "")
    read_store(path, STORE_PASSWORD, "")
    assert len(opened) == 1

    authority.truststore("PKCS12")
    read_store(path, STORE_PASSWORD, "")
    assert len(opened) == 2


def test_a_repr_shows_no_key(client):
    assert "PRIVATE" not in repr(read_store(client.jks(), STORE_PASSWORD, ""))
