"""PLAIN and SCRAM, both sides of each, without a connection."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.credentials import HASHES, Credential, credential_text, parse_credential
from ottla.security.principal import Principal
from ottla.security.sasl.mechanism import Authenticated, AuthenticationFailed, BadCredentials
from ottla.security.sasl.plain import PlainClient, PlainServer, users_of
from ottla.security.sasl.scram import ScramClient, ScramServer, TokenLogin, credential

ALICE = Authenticated(Principal("User", "alice"))
SECRET = b"a secret of the broker"


def stored(mechanism: str = "SCRAM-SHA-256", iterations: int = 4096) -> dict[str, Credential]:
    return {"alice": credential(mechanism, "secret", b"0123456789abcdef", iterations)}


def scram(client: ScramClient, server: ScramServer) -> Authenticated | None:
    challenge, _ = server.answer(client.first())
    final = client.answer(challenge)
    assert final is not None
    proof, who = server.answer(final)
    assert client.answer(proof) is None
    return who


def test_plain_knows_the_users_of_its_login_module() -> None:
    """user_NAME="password" are the users; username and password are the broker's own."""
    users = users_of({"username": "admin", "password": "a", "user_alice": "secret"})
    assert users == {"alice": "secret"}
    assert PlainServer(users).answer(PlainClient("alice", "secret").first()) == (b"", ALICE)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"a\0b\0c\0d", "expected 3 tokens, got 4"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0bob\0secret", "Invalid username or password"),
        (b"bob\0alice\0secret", "authorization id that is different"),
        (b"\0alice\0\xff", "not UTF-8"),
        (b"", "expected 3 tokens, got 1"),
    ],
)
def test_plain_refuses_in_kafkas_words(token: bytes, text: str) -> None:
    """A wrong password and an unknown user are refused by the same sentence."""
    with pytest.raises(AuthenticationFailed, match=text) as refused:
        PlainServer({"alice": "secret"}).answer(token)
    assert "secret" not in str(refused.value)


def test_scram_agrees_with_the_rfc() -> None:
    """The messages of the example in RFC 7677."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    kept = credential("SCRAM-SHA-256", "pencil", salt, 4096)
    server = ScramServer(
        "SCRAM-SHA-256", {"user": kept}.get, SECRET, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge, _ = server.answer(client.first())
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert challenge == b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = client.answer(challenge)
    proof = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert final == b"c=biws,r=" + nonce + b",p=" + proof
    verdict, who = server.answer(final)
    assert verdict == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert who == Authenticated(Principal("User", "user"))
    assert client.answer(verdict) is None


@given(
    mechanism=st.sampled_from(sorted(HASHES)),
    name=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
    password=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_scram_lets_in_who_knows_the_password(mechanism: str, name: str, password: str) -> None:
    """Whatever the characters of name and password, also those that SCRAM's messages use."""
    kept = credential(mechanism, password, b"salt", 4096)
    server = ScramServer(mechanism, {name: kept}.get, SECRET)
    who = scram(ScramClient(mechanism, name, password), server)
    assert who == Authenticated(Principal("User", name))


@pytest.mark.parametrize("mechanism", sorted(HASHES))
def test_a_token_logs_in_as_its_owner_until_its_end(mechanism: str) -> None:
    """By its id and password with the extension; by nothing else, and users not with it. Whether
    there is such a token cannot be seen before the proof."""
    tokens = {"id": TokenLogin("alice", "p=,w", 7_000)}

    def server() -> ScramServer:
        users = {"alice": credential(mechanism, "secret", b"salt", 8192)}
        return ScramServer(mechanism, users.get, SECRET, find_token=tokens.get)

    who = scram(ScramClient(mechanism, "id", "p=,w", by_token=True), server())
    assert who == Authenticated(Principal("User", "alice"), 7_000, by_token=True)
    wrong = [("id", "x", True), ("id", "p=,w", False), ("alice", "secret", True), ("i", "x", True)]
    for name, password, by_token in wrong:
        client = ScramClient(mechanism, name, password, by_token=by_token)
        with pytest.raises(BadCredentials, match="the proof of the client is wrong"):
            scram(client, server())
    shapes = set()
    for name in ("id", "another"):
        client = ScramClient(mechanism, name, "", nonce="n", by_token=True)
        challenge, _ = server().answer(client.first())
        shapes.add((len(challenge), challenge.rpartition(b",")[2]))
    assert len(shapes) == 1
    assert "p=,w" not in repr(tokens)


@pytest.mark.parametrize(
    ("extensions", "by_token"),
    [
        (b"", False),
        (b",tokenauth=true", True),
        (b",tokenauth=TRUE", True),
        (b",a=b,tokenauth=true", True),
        (b",tokenauth=false", False),
        (b",tokenauth", False),
        (b",xtokenauth=true", False),
    ],
)
def test_the_extension_is_read_as_by_java(extensions: bytes, by_token: bool) -> None:
    """Others are passed over."""
    asked = []
    server = ScramServer("SCRAM-SHA-256", lambda name: None, SECRET, find_token=asked.append)
    server.answer(b"n,,n=name,r=nonce" + extensions)
    assert asked == (["name"] if by_token else [])


def test_scram_refuses_a_wrong_password_and_an_unknown_user_alike() -> None:
    """Both run to the end, and an unknown user's salt is the same each time."""

    def attempt(name: str) -> tuple[bytes, str]:
        server = ScramServer("SCRAM-SHA-256", stored().get, SECRET, nonce="server")
        client = ScramClient("SCRAM-SHA-256", name, "wrong", nonce="client")
        challenge, _ = server.answer(client.first())
        final = client.answer(challenge)
        assert final is not None
        with pytest.raises(BadCredentials) as refused:
            server.answer(final)
        return challenge, str(refused.value)

    (_, known), (first, unknown) = attempt("alice"), attempt("bob")
    assert known == unknown
    assert first == attempt("bob")[0]
    assert first != attempt("carol")[0]
    assert b",i=4096" in first


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"y,,n=alice,r=x",  # GS2 header of a client that could bind the channel
        b"n,,n=alice",
        b"n,,n=al=ice,r=x",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=\x00",
        b"\xff",
    ],
)
def test_scram_refuses_a_malformed_first_message(token: bytes) -> None:
    """Whatever is not of the grammar."""
    with pytest.raises(AuthenticationFailed):
        ScramServer("SCRAM-SHA-256", stored().get, SECRET).answer(token)


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b",r=", b",r=x"),
        lambda final: final[:-6] + b"AAAA==",
        lambda final: final.partition(b",p=")[0],
        lambda final: final.partition(b",p=")[0] + b",p=AA==",
        lambda final: b"",
    ],
)
def test_scram_refuses_a_changed_final_message(change) -> None:  # type: ignore[no-untyped-def]
    """Binding, nonce and proof count."""
    server = ScramServer("SCRAM-SHA-256", stored().get, SECRET)
    client = ScramClient("SCRAM-SHA-256", "alice", "secret")
    final = client.answer(server.answer(client.first())[0])
    assert final is not None
    with pytest.raises(AuthenticationFailed):
        server.answer(change(final))


def test_a_client_is_not_fooled_by_a_broker_without_the_credential() -> None:
    """It checks the signature, the nonce and how much it is asked to compute."""
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", nonce="client")
    with pytest.raises(AuthenticationFailed, match="malformed"):
        client.answer(b"r=another,s=AAAA,i=4096")
    with pytest.raises(AuthenticationFailed, match="4095 iterations"):
        client.answer(b"r=client1,s=AAAA,i=4095")
    with pytest.raises(AuthenticationFailed, match="999999999 iterations"):
        client.answer(b"r=client1,s=AAAA,i=999999999")
    assert client.answer(b"r=client1,s=AAAA,i=4096") is not None
    with pytest.raises(AuthenticationFailed, match="could not prove"):
        client.answer(b"v=" + base64.b64encode(bytes(32)))


def test_an_authorization_id_must_be_the_user() -> None:
    """As Kafka says it."""
    server = ScramServer("SCRAM-SHA-256", stored().get, SECRET)
    with pytest.raises(AuthenticationFailed, match="authorization id that is different"):
        server.answer(b"n,a=bob,n=alice,r=x")


@pytest.mark.parametrize("mechanism", sorted(HASHES))
def test_a_credential_is_kept_as_kafka_keeps_it(mechanism: str) -> None:
    """salt, stored_key, server_key and iterations, and never the password."""
    kept = stored(mechanism)["alice"]
    text = credential_text(kept)
    assert text.startswith("salt=MDEyMzQ1Njc4OWFiY2RlZg==,stored_key=")
    assert text.endswith(",iterations=4096")
    assert parse_credential(text) == kept


@pytest.mark.parametrize("text", ["", "salt=a", "salt=,stored_key=,server_key=,iterations=x"])
def test_a_bad_credential_is_refused_without_being_shown(text: str) -> None:
    """What is kept beside is a secret too."""
    with pytest.raises(ValueError, match="it is no SCRAM credential"):
        parse_credential(text)
