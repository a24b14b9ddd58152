"""Lines of JAAS, as Kafka's options have them."""

from __future__ import annotations

import pytest

from ottla.security.jaas import BadJaas, login_module, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_a_line_of_kafkas_documentation() -> None:
    """Over several lines, with values in quotation marks and without."""
    values = 'username="admin" password=admin-secret\n user_alice=\'a "b"\''
    entry = parse_jaas(f"{PLAIN} required\n {values};")
    assert entry.module == PLAIN
    assert entry.flag == "required"
    assert entry.options == {
        "username": "admin",
        "password": "admin-secret",
        "user_alice": 'a "b"',
    }


def test_escapes_in_quotation_marks() -> None:
    """A password may have any character."""
    entry = parse_jaas(rf'{PLAIN} required password="a\"b\\c;=d";')
    assert entry.options == {"password": 'a"b\\c;=d'}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no login module"),
        (f"{PLAIN};", "a flag"),
        (f"{PLAIN} needed;", "followed by one of required"),
        (f'{PLAIN} required username="secret1"', "semicolon"),
        (f'{PLAIN} required username="secret1;', "not closed"),
        (f"{PLAIN} required username;", "option username of .* has no value"),
        (f"{PLAIN} required username=;", "option username of .* has no value"),
        (f"{PLAIN} required; {SCRAM} required;", "contains 2 login modules"),
        (f'{PLAIN} required "username"=secret1;', "name of an option"),
    ],
)
def test_what_is_wrong_is_said_without_a_secret(text: str, why: str) -> None:
    """One sentence, which names what is missing."""
    with pytest.raises(BadJaas, match=why) as refused:
        parse_jaas(text)
    assert "secret1" not in str(refused.value)


def test_the_module_must_be_for_the_mechanism() -> None:
    """Kerberos and foreign modules are refused by a sentence."""
    assert login_module(f"{SCRAM} required;", "SCRAM-SHA-512").module == SCRAM
    with pytest.raises(BadJaas, match="is for PLAIN, not for SCRAM-SHA-256"):
        login_module(f"{PLAIN} required;", "SCRAM-SHA-256")
    with pytest.raises(BadJaas, match="Kerberos"):
        login_module("com.sun.security.auth.module.Krb5LoginModule required;", "GSSAPI")
    with pytest.raises(BadJaas, match="none of Kafka's login modules"):
        login_module("com.example.Mine required;", "PLAIN")
