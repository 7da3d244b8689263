import pytest

from resources.config.config_providers import resolve


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MIRROR_PASSWORD", "p;w")
    (tmp_path / "secrets.properties").write_text("user=mirror\npass=grün", encoding="utf-8")
    (tmp_path / "token").write_text("abc\n")
    return tmp_path


@pytest.mark.parametrize(
    ("written", "value"),
    [
        pytest.param("x${env:MIRROR_PASSWORD}y", "xp;wy", id="a variable inside of a value"),
        pytest.param("${file:secrets.properties:pass}", "grün", id="a key of a UTF-8 file"),
        pytest.param("${dir:.:token}", "abc\n", id="a file as it is, its last line's end too"),
        pytest.param("${env:MIRROR_PASSWORD}${file:secrets.properties:user}", "p;wmirror", id="2"),
        pytest.param("${no-colon} $x", "${no-colon} $x", id="what is no reference stays"),
    ],
)
def test_a_reference_is_replaced_by_the_value_it_names(folder, written, value):
    assert resolve({"a": written}, folder) == ({"a": value}, {})


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("${env:NOT_SET}", "not set"),
        ("${file:none.properties:a}", "No such file"),
        ("${file:secrets.properties:none}", "does not have this key"),
        ("${dir:.:none}", "No such file"),
        ("${dir:.:../token}", "outside"),
        ("${vault:a:b}", "env, file and dir"),
    ],
)
def test_an_unresolved_reference_is_an_error_of_its_key(folder, written, why):
    values, failures = resolve({"a": written, "b": "1"}, folder)

    assert values["b"] == "1"
    assert list(failures) == ["a"]
    assert why in str(failures["a"])
    assert str(failures["a"]).startswith(f"a: {written} ")


KAFKAS = "org.apache.kafka.common.config.provider"


def test_a_declared_provider_has_its_own_name_and_limits(folder):
    entries = {
        "config.providers": "files, vars",
        "config.providers.files.class": f"{KAFKAS}.FileConfigProvider",
        "config.providers.files.param.allowed.paths": "/nowhere",
        "config.providers.vars.class": "EnvVarConfigProvider",
        "config.providers.vars.param.allowlist.pattern": "MIRROR_.*",
        "a": "${files:secrets.properties:user}",
        "b": "${vars:MIRROR_PASSWORD}",
        "c": "${vars:HOME}",
    }

    values, failures = resolve(entries, folder)

    assert values["b"] == "p;w"
    assert "allowed.paths" in str(failures["a"])
    assert "allowlist.pattern" in str(failures["c"])
