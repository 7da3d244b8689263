import pytest
from hypothesis import given
from hypothesis import strategies as st
from javaproperties import dumps

from resources.config.properties_file import parse, read
from schemas.errors.configuration import ConfigFileError


def values(text):
    return {key: entry.value for key, entry in parse(text).items()}


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_written_entries_are_read_back(entries):
    text = dumps(entries, timestamp=False)

    assert values(text.encode("iso-8859-1").decode("iso-8859-1")) == entries


@given(TEXT)
def test_any_text_without_an_escape_can_be_read(text):
    parse(text.replace("\\", "/"))


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        pytest.param("a=1", {"a": "1"}, id="equals sign"),
        pytest.param("a:1", {"a": "1"}, id="colon"),
        pytest.param("a 1", {"a": "1"}, id="blank"),
        pytest.param("a\t=\f1", {"a": "1"}, id="blanks around the separator"),
        pytest.param("a = = 1", {"a": "= 1"}, id="only the first separator counts"),
        pytest.param("  a=1  ", {"a": "1  "}, id="blanks at the end belong to the value"),
        pytest.param("A->B.topics=.*", {"A->B.topics": ".*"}, id="a flow's key"),
        pytest.param("# a=1\n! b=2\n\n \t\nc=3", {"c": "3"}, id="comments and empty lines"),
        pytest.param("a=1 # no comment", {"a": "1 # no comment"}, id="a comment has its own line"),
        pytest.param("# a\\\nb=1", {"b": "1"}, id="a comment is not continued"),
        pytest.param("a=1,\\\n   2", {"a": "1,2"}, id="continued, without the indent"),
        pytest.param("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}, id="an escaped backslash is no end"),
        pytest.param("a=1\\\n# b", {"a": "1# b"}, id="a continued line is no comment"),
        pytest.param("a=1\\", {"a": "1"}, id="continued by nothing"),
        pytest.param("a\\ b\\=c=1", {"a b=c": "1"}, id="escapes in a key"),
        pytest.param("a=\\u0041\\t\\q", {"a": "A\tq"}, id="escapes in a value"),
        pytest.param("a=\\ud83d\\ude00", {"a": "😀"}, id="a pair of surrogates"),
        pytest.param("a=\\ud83d", {"a": "\ufffd"}, id="half a pair of surrogates"),
        pytest.param("a=1\na=2", {"a": "2"}, id="the last one wins"),
        pytest.param("a", {"a": ""}, id="a key alone"),
        pytest.param("=1", {"": "1"}, id="a value alone"),
        pytest.param("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}, id="all line ends"),
        pytest.param("a=x\\.y", {"a": "x.y"}, id="a regular expression needs two backslashes"),
        pytest.param("a=x\\\\.y", {"a": "x\\.y"}, id="and then has one"),
    ],
)
def test_the_format_is_javas(text, entries):
    assert values(text) == entries


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_each_key_has_the_line_of_its_entrys_start(end):
    lines = ["# first", "a=1,\\", "  2", "", "b=3", "c=4", "b=5"]

    found = parse(end.join(lines))

    assert {key: entry.line for key, entry in found.items()} == {"a": 2, "b": 7, "c": 6}


def test_a_broken_unicode_escape_is_an_error_that_names_the_line(tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text("a=1\nb=\\u12")

    with pytest.raises(ConfigFileError, match="line 2"):
        read(path)


def test_a_file_is_read_as_iso_8859_1(tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_bytes(b"a=gr\xfcn")

    assert read(path)["a"].value == "grün"


def test_a_missing_file_is_an_error_with_the_reason(tmp_path):
    with pytest.raises(ConfigFileError, match="No such file"):
        read(tmp_path / "none.properties")
