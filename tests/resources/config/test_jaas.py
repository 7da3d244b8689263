import pytest

from resources.config.jaas import parse

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        pytest.param('required username="u" password="p";', ["u", "p"], id="quoted"),
        pytest.param("required username=u password=p;", ["u", "p"], id="bare"),
        pytest.param("""REQUIRED username='u' password="it's";""", ["u", "it's"], id="either mark"),
        pytest.param('required username="u" password="a\\"b\\\\c";', ["u", 'a"b\\c'], id="escapes"),
        pytest.param('required username="u" password="p w;\'=x" ;', ["u", "p w;'=x"], id="signs"),
        pytest.param('required\n username = "u"\n password="p"\n;', ["u", "p"], id="lines"),
        pytest.param('required username="u" password="";', ["u", ""], id="empty"),
        pytest.param('required username="u" password="\\101\\n";', ["u", "A\n"], id="octal"),
    ],
)
def test_a_login_module_is_read_as_java_reads_it(text, options):
    module = parse(f"{SCRAM} {text}")

    assert module.name == "ScramLoginModule"
    assert list(module.options.values()) == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        SCRAM,
        f'{SCRAM} required username="hunter2"',
        f"{SCRAM} maybe password=hunter2;",
        f'{SCRAM} required password="hunter2;',
        f"{SCRAM} required password=hunter2; {SCRAM} required password=hunter2;",
        f"{SCRAM} required password hunter2 =;",
    ],
)
def test_an_invalid_login_module_is_an_error_without_any_secret(text):
    with pytest.raises(ValueError, match=r"it|login|mark|option") as error:
        parse(text)

    assert "hunter2" not in str(error.value)


def test_a_repr_shows_no_option():
    assert "hunter2" not in repr(parse(f"{SCRAM} required password=hunter2;"))
