"""Patterns that clients send: RE2's language, in bounded work."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator import pattern_parser, patterns
from ottla.coordinator.patterns import Pattern, PatternError, PatternTooComplex
from tests.work import counted_calls

CALLS_MAX = 5 * patterns.WORK_MAX


@pytest.mark.parametrize(
    ("pattern", "fits", "not_"),
    [
        ("orders-.*", ["orders-", "orders-1"], ["order-1", "xorders-1", "orders-\n"]),
        ("a|bc|", ["a", "bc", ""], ["ab", "abc"]),
        ("(?:ab)+c{2,3}?", ["abcc", "ababccc"], ["abc", "abcccc", "cc"]),
        ("x{0}y{,2}", ["y{,2}"], ["y", "xy"]),
        ("[^a-c[:digit:]-]", ["d", "é"], ["a", "5", "-", ""]),
        ("[]a]+", ["]a]"], ["b"]),
        (r"\d\w\S\D", ["1_xa"], ["1_x1", "1 xa"]),
        (r"[\d\.x-]+", ["1.x-"], ["y"]),
        (r"\x41\x{e9}\t\.", ["Aé\t."], ["Aé\tx"]),
        (r"\pL\p{Nd}\PL\p{^Lu}", ["é1-x"], ["é1-X", "11-x"]),
        (r"\Qa.b*\E+", ["a.b*", "a.b***"], ["axb*"]),
        ("(?i)AbC[d-f]", ["abcE", "ABCd"], ["abcg"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("(a(?i)b)c", ["aBc"], ["aBC"]),
        ("(?P<first>a)(?<second>b)", ["ab"], ["a"]),
        ("(?s)a.b", ["a\nb"], ["ab"]),
        ("^a$", ["a"], ["a\n"]),
        ("(?m)a$\n^b", ["a\nb"], ["ab"]),
        (r"a\b-\Bc", [], ["a-c"]),
        (r"\Aa\b.\bc\z", ["a-c"], ["abc"]),
        ("(a*)*(b|a?)*", ["", "aab", "bbaa"], ["c"]),
    ],
)
def test_the_language(pattern: str, fits: list[str], not_: list[str]) -> None:
    """What each part means; each was compared with RE2 itself."""
    made = Pattern(pattern)
    assert [text for text in fits if not made.matches(text)] == []
    assert [text for text in not_ if made.matches(text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "(ab[", "[a", "[z-a]", "[[:nope:]]", "*a", "a**", "a+{2}", "a{3,2}", "a{1001}",
        r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "(?>a)", "(?P=a)", r"\p{Nope}", r"\y", "\\", r"\xg1",
        "(?P<a>x)(?P<a>y)", "(?i)*", "x" * (pattern_parser.PATTERN_CHARACTERS_MAX + 1),
        "(" * (pattern_parser.DEPTH_MAX + 2) + ")" * (pattern_parser.DEPTH_MAX + 2),
    ],
)  # fmt: skip
def test_what_is_not_in_the_language_is_refused(pattern: str) -> None:
    """Also what Python would take: back-references and looking ahead."""
    with pytest.raises(PatternError):
        Pattern(pattern)


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "c"]),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "{2}", "*?"])).map(
                lambda two: f"(?:{two[0]}){two[1]}"
            ),
        ),
        max_leaves=6,
    ),
    st.lists(st.text("abc", max_size=6), max_size=8),
)
def test_pythons_patterns_say_the_same(pattern: str, texts: list[str]) -> None:
    """On what both languages have in common, and short texts."""
    ours, theirs = Pattern(pattern), re.compile(pattern)
    for text in texts:
        assert ours.matches(text) is (theirs.fullmatch(text) is not None), (pattern, text)


@pytest.mark.parametrize(
    "pattern", ["(a+)+", "(a|aa)+", "(a|a)*x", "(.*)*=(.*)*", "a*a*a*a*a*a*a*b", "(a?){500}a{500}"]
)
def test_hostile_patterns_take_no_longer_than_others(pattern: str) -> None:
    """What takes Python years is over after work that is bounded, or refused."""
    with counted_calls() as calls:
        try:
            Pattern(pattern).matches("a" * 3000 + "!")
        except PatternTooComplex:
            pass
    assert calls.count < CALLS_MAX


def test_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that becomes too large, has too many states or too much work is refused."""
    with pytest.raises(PatternTooComplex, match="too large"):
        Pattern("((a{100}){100}){100}")
    many = Pattern("(?:a|b)*a(?:a|b){12}")  # a power of two of states
    texts = [f"{number:020b}".translate({48: "a", 49: "b"}) for number in range(3000)]
    monkeypatch.setattr(patterns, "STATES_MAX", 200)
    with pytest.raises(PatternTooComplex, match="too many ways"):
        [many.matches(text) for text in texts]
    monkeypatch.undo()
    large = Pattern("(?:a|b)*a(?:a|b){12}.{500}")
    with pytest.raises(PatternTooComplex, match="too long"):
        [large.matches(text * 30) for text in texts]


def test_a_warm_pattern_is_quick() -> None:
    """One look-up a character: more work does not grow with the number of texts."""
    made = Pattern("orders-[0-9]+-.*")
    for number in range(10):
        made.matches(f"orders-{number}-eu")
    work = made._work
    assert sum(made.matches(f"orders-{number}-eu") for number in range(10_000)) == 10_000
    assert made._work <= work + 200
