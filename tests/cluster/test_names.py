"""Topic names: which are legal, and Kafka's words for those that are not."""

import pytest

from ottla.cluster.names import collides, name_error, unified


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "x" * 249, "...", "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    """Letters, digits, '.', '_' and '-', up to 249 of them."""
    assert name_error(name) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        (
            "y" * 250,
            (
                f"Topic name is invalid: the length of '{'y' * 250}' is longer than the max "
                "allowed length 249"
            ),
        ),
        (
            "a b",
            (
                "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
                "alphanumerics, '.', '_' and '-'"
            ),
        ),
    ],
)
def test_illegal_names(name: str, message: str) -> None:
    """Each with Kafka's message."""
    assert name_error(name) == message


@pytest.mark.parametrize("name", ["a/b", "ä", "a\n", "a\x00b", "٣"])
def test_no_other_characters(name: str) -> None:
    """ASCII only, whatever Unicode thinks a digit or a letter is; no line end sneaks in."""
    assert name_error(name) is not None


def test_collisions() -> None:
    """'.' and '_' cannot be distinguished in a metric's name."""
    assert unified("a.b_c") == unified("a_b.c") == "a_b_c"
    assert collides("a.b")
    assert collides("a_b")
    assert not collides("a-b")
