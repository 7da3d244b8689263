import pytest

from schemas.errors.configuration import InvalidPatternError
from schemas.mm2.name_filter import NameFilter


@pytest.mark.parametrize(
    ("include", "name", "matches"),
    [
        pytest.param(("orders",), "orders", True, id="a name"),
        pytest.param(("orders",), "orders2", False, id="the full name must match"),
        pytest.param(("a.*", "b"), "b", True, id="any entry"),
        pytest.param(("a|ab",), "ab", True, id="the second alternative, where the first is short"),
        pytest.param((), "orders", False, id="an empty list matches nothing"),
        pytest.param((r"\w+",), "grün", False, id="\\w is ASCII, as in Java"),
        pytest.param(("a(x", "y)b"), "axb", True, id="entries are joined before they are compiled"),
    ],
)
def test_the_joined_expression_matches_the_whole_name(include, name, matches):
    assert NameFilter(include).matches(name) is matches


def test_exclude_overrides_include():
    assert not NameFilter((".*",), ("__.*",)).matches("__consumer_offsets")


@pytest.mark.parametrize("bad", [r"\p{Lu}.*", "a[b&&c]", "(", r"\Qa.b\E", "a[b[c]]", "(?<n>a)"])
def test_a_pattern_with_another_meaning_in_java_is_rejected_and_named(bad):
    with pytest.raises(InvalidPatternError) as error:
        NameFilter(("fine.*", bad))

    assert f"the regular expression {bad} " in str(error.value)


def test_names_are_the_entries_that_are_valid_names():
    assert NameFilter(("orders", "ord.*", "team.orders_1", "a|b")).names == (
        "orders",
        "team.orders_1",
    )
