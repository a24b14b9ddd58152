"""Credentials in kafka-configs.sh: read as Kafka's tool reads them, shown to nobody."""

from __future__ import annotations

import pytest

from ottla.cli.kafka_scripts.user_configs import credential_in, without_secrets


@pytest.mark.parametrize(
    ("text", "iterations", "password"),
    [
        ("password=a,b=c", None, "a,b=c"),
        ("iterations=8192,password=x", 8192, "x"),
        ("iterations=-1,password=", None, ""),
    ],
)
def test_a_credential_is_read(text: str, iterations: int | None, password: str) -> None:
    """The password is all that follows."""
    assert credential_in("SCRAM-SHA-256", text) == (iterations, password)


@pytest.mark.parametrize(
    "text", ["secret", "iterations=9,password=secret", "iterations=,password=secret", "word=secret"]
)
def test_a_bad_credential_is_not_shown(text: str) -> None:
    """What is wrong with it is."""
    with pytest.raises(ValueError, match="SCRAM-SHA-256") as caught:
        credential_in("SCRAM-SHA-256", text)
    assert "secret" not in str(caught.value)


def test_a_command_line_is_shown_without_passwords() -> None:
    """Kafka's tool prints it whole when something fails."""
    for config in ("SCRAM-SHA-256=[password=x y],a=b", "scram-sha-256=x", "ssl.key.password=x"):
        words = ["--user", "alice", "--add-config", config]
        assert without_secrets(words) == "--user alice --add-config [hidden]"
    assert without_secrets(["--add-config", "a=b"]) == "--add-config a=b"
