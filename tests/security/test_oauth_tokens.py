"""Tokens of OAUTHBEARER: which hold, what the other side learns, and how clients come to them."""

from __future__ import annotations

import base64
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.oauth.claims import BadToken
from ottla.security.oauth.fetching import Credentials, FetchFailed, check_url, fetch, fetch_token
from ottla.security.oauth.login import (
    CLIENT_ID,
    CLIENT_SECRET,
    TOKEN_URL,
    URL_ENCODED,
    fetch_of,
)
from ottla.security.oauth.signed import Expected, SignedTokens, UnknownKey, read_keys
from ottla.security.oauth.source import (
    ENDED_S,
    LIFETIME_UNKNOWN_S,
    RENEWED_AFTER,
    TokenSource,
)
from ottla.security.oauth.unsigned import UnsignedTokens, encoded, unsigned_token
from ottla.security.sasl.mechanism import AuthenticationFailed, BadCredentials
from ottla.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer

from .issuer import AUDIENCE, ISSUER, Issuer, Provider

EXPECTED = Expected((AUDIENCE, "other"), ISSUER)


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def validator(issuer: Issuer, expected: Expected = EXPECTED) -> SignedTokens:
    keys = read_keys(issuer.jwks)
    return SignedTokens(lambda: keys, expected, time.time)


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS512"])
def test_a_signed_token_holds(algorithm: str) -> None:
    """Until it expires; the name is that of its claim."""
    issuer = Issuer(algorithm)
    valid = validator(issuer).validate(issuer.token("alice", lifetime_s=100))
    assert valid.name == "alice"
    assert 95_000 < valid.expires_ms - time.time() * 1000 <= 100_000
    named = validator(issuer, EXPECTED._replace(name_claim="email"))
    assert named.validate(issuer.token(email="a@example")).name == "a@example"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": None}, "exp is missing"),
        ({"iat": None}, "iat is missing"),
        ({"exp": "soon"}, "no point in time"),
        ({"lifetime_s": -31}, "has expired"),
        ({"iat": 2_000_000_000, "exp": 2_000_000_100}, "issued in the future"),
        ({"nbf": 2_000_000_000}, "does not hold yet"),
        ({"iss": "https://other.example"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "they"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"sub": None}, "sub is missing"),
        ({"sub": " "}, "sub is missing"),
        ({"sub": 7}, "is no text"),
        ({"scope": {"a": 1}}, "neither text nor a list"),
    ],
)
def test_what_does_not_hold(issuer: Issuer, claims: dict[str, Any], reason: str) -> None:
    """Each for one reason."""
    with pytest.raises(BadToken, match=reason):
        validator(issuer).validate(issuer.token(**claims))


def test_what_holds_all_the_same(issuer: Issuer) -> None:
    """A clock that is a little off, one of several audiences, scopes in a list, or none."""
    accepts = validator(issuer)
    for claims in (
        {"lifetime_s": -20},
        {"aud": ["x", "other"]},
        {"scope": ["a", "b"]},
        {"scope": None},
    ):
        accepts.validate(issuer.token(**claims))
    anywhere = validator(issuer, Expected())
    anywhere.validate(issuer.token(iss=None, aud="anything"))


def test_signatures_of_others(issuer: Issuer) -> None:
    """Nobody's, a shared secret's, another key's under the same name, and one that is cut."""
    accepts = validator(issuer)
    token = issuer.token()
    head, claims, signature = token.split(".")
    forged = Issuer().token("admin")
    for bad, reason in (
        (f"{encoded({'alg': 'none'})}.{claims}.", "not signed by a private key"),
        (f"{encoded({'alg': 'HS256', 'kid': 'first'})}.{claims}.{signature}", "private key"),
        (f"{encoded({'alg': ['ES256']})}.{claims}.{signature}", "private key"),
        (forged, "signature of the token is wrong"),
        (f"{head}.{forged.split('.')[1]}.{signature}", "signature of the token is wrong"),
        (token[:-8], "signature of the token is wrong"),
        (f"{head}.{claims}", "has 3 parts"),
        ("..", "not JSON"),
        (f"{encoded([])}.{claims}.", "no object"),
    ):
        with pytest.raises(BadToken, match=reason):
            accepts.validate(bad)
    with pytest.raises(UnknownKey):
        accepts.validate(Issuer(kid="second").token())


def test_keys_may_change(issuer: Issuer) -> None:
    """A token that names an unknown key says so, for the keys to be fetched; then it holds."""
    current = [read_keys(issuer.jwks)]
    asked: list[None] = []
    accepts = SignedTokens(
        lambda: current[0], EXPECTED, time.time, on_unknown=lambda: asked.append(None)
    )
    later = Issuer(kid="later")
    with pytest.raises(UnknownKey):
        accepts.validate(later.token())
    assert len(asked) == 1
    current[0] = read_keys(later.jwks)
    assert accepts.validate(later.token()).name == "alice"
    assert len(asked) == 1


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,.keysty', max_size=60).map(str.encode))
def test_what_is_no_set_of_keys_is_refused(data: bytes) -> None:
    """With one kind of error."""
    with pytest.raises(ValueError, match=r"it is not JSON|it has no list|none of its keys"):
        read_keys(data)


@given(st.text(max_size=80) | st.text(alphabet=".eyJhbGciOiJ", max_size=80))
def test_any_text_is_no_token(text: str) -> None:
    """Signed or not: refused, and nothing else happens."""
    keys = read_keys(b'{"keys": [' + EC_KEY + b"]}")
    for accepts in (
        SignedTokens(lambda: keys, Expected(), time.time),
        UnsignedTokens({}, time.time),
    ):
        with pytest.raises(BadToken):
            accepts.validate(text)


EC_KEY = json.dumps(Issuer().key.as_dict(private=False)).encode()


def test_unsigned_tokens_by_the_options_of_jaas() -> None:
    """As Kafka's unsecured handlers make and check them."""
    jaas = {"unsecuredLoginStringClaim_sub": "bob", "unsecuredLoginListClaim_scope": "|a|b"}
    token, expires_s = unsigned_token(jaas, 1_000.0)
    assert expires_s == 4_600
    accepts = UnsignedTokens({"unsecuredValidatorRequiredScope": "b a"}, lambda: 1_000.0)
    assert accepts.validate(token) == ("bob", 4_600_000)
    strict = UnsignedTokens({"unsecuredValidatorRequiredScope": "c"}, lambda: 1_000.0)
    with pytest.raises(BadToken) as caught:
        strict.validate(token)
    assert (caught.value.status, caught.value.scope) == ("insufficient_scope", "c")
    late = UnsignedTokens({}, lambda: 4_600.5)
    with pytest.raises(BadToken, match="expired"):
        late.validate(token)
    lenient = UnsignedTokens({"unsecuredValidatorAllowableClockSkewMs": "1000"}, lambda: 4_600.5)
    lenient.validate(token)
    with pytest.raises(BadToken, match="only unsigned ones"):
        accepts.validate(Issuer().token())
    with pytest.raises(ValueError, match="unsecuredLoginStringClaim_sub is missing"):
        unsigned_token({}, 0.0)


def test_a_login_by_a_token(issuer: Issuer) -> None:
    """One message; the principal is the token's, the session ends with it."""
    token = issuer.token("alice")
    server = OAuthBearerServer(validator(issuer))
    client = OAuthBearerClient(token, {"traceId": "7"})
    challenge, who = server.answer(client.first())
    assert challenge == b""
    assert who is not None
    assert str(who.principal) == "User:alice"
    assert who.expires_ms > time.time() * 1000
    assert client.answer(challenge) is None


def test_a_token_that_does_not_hold_is_answered_in_json(issuer: Issuer) -> None:
    """Then the client says one control-A, and the login has failed with the same JSON."""
    server = OAuthBearerServer(validator(issuer))
    client = OAuthBearerClient(issuer.token(aud="they"))
    challenge, who = server.answer(client.first())
    assert (challenge, who) == (b'{"status":"invalid_token"}', None)
    final = client.answer(challenge)
    assert final == b"\x01"
    with pytest.raises(AuthenticationFailed, match=r'^\{"status":"invalid_token"\}$') as caught:
        server.answer(final)
    assert "another audience" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01a1=b\x01auth=Bearer abc\x01\x01",
    ],
)
def test_messages_that_are_none(issuer: Issuer, message: bytes) -> None:
    """Refused as bad credentials."""
    with pytest.raises(BadCredentials):
        OAuthBearerServer(validator(issuer)).answer(message)


def test_another_name_than_the_tokens(issuer: Issuer) -> None:
    """An authorization id must be the principal's."""
    for name, gets_in in (("alice", True), ("bob", False)):
        first = f"n,a={name},\x01auth=bearer {issuer.token()}\x01\x01".encode()
        server = OAuthBearerServer(validator(issuer))
        if gets_in:
            assert server.answer(first)[1] is not None
        else:
            with pytest.raises(AuthenticationFailed, match="different from the token's"):
                server.answer(first)


def test_what_cannot_be_sent() -> None:
    """A token or an extension of other letters never leaves."""
    with pytest.raises(AuthenticationFailed, match="letters"):
        OAuthBearerClient("a\x01b")
    with pytest.raises(AuthenticationFailed, match="cannot be sent"):
        OAuthBearerClient("abc", {"a=b": "c"})


# Fetching


@pytest.fixture
def provider(issuer: Issuer) -> Iterator[Provider]:
    with Provider(issuer, {"app": "its secret"}) as running:
        yield running


def test_a_token_of_an_endpoint(provider: Provider, issuer: Issuer) -> None:
    """By client credentials, with a scope."""
    token, _ = fetch_token(f"{provider.url}/token", Credentials("app", "its secret", "a b"))
    assert validator(issuer).validate(token).name == "app"
    assert provider.scopes == ["a b"]


def test_id_and_secret_may_be_url_encoded(issuer: Issuer) -> None:
    """`sasl.oauthbearer.header.urlencode`, as java.net.URLEncoder does it (KAFKA-16345)."""
    shown = "an+app%3A%C3%BC", "1%2F2%7E*-._"
    with Provider(issuer, dict([shown])) as running:
        options = {
            TOKEN_URL: f"{running.url}/token",
            CLIENT_ID: "an app:ü",
            CLIENT_SECRET: "1/2~*-._",
            URL_ENCODED: "true",
        }
        token, _ = fetch_of(options, {})()
        assert validator(issuer).validate(token).name == shown[0]
        with pytest.raises(FetchFailed, match="401"):
            fetch_of(options | {URL_ENCODED: "false"}, {})()


def test_a_secret_that_is_refused_is_not_shown(provider: Provider) -> None:
    """Nor is a password in the URL."""
    url = provider.url.replace("://", "://user:hidden@")
    with pytest.raises(FetchFailed, match=r"/token answered 401 \(invalid_client\)") as caught:
        fetch_token(f"{provider.url}/token", Credentials("app", "a guess"))
    assert "a guess" not in str(caught.value)
    assert "a guess" not in repr(Credentials("app", "a guess"))
    with pytest.raises(FetchFailed) as caught:
        fetch_token(f"{url}/token?key=hidden", Credentials("app", "a guess"))
    assert "hidden" not in str(caught.value)


def test_files_and_what_is_no_url(tmp_path: Path) -> None:
    """A token may be in a file, as Kafka reads it."""
    (tmp_path / "token").write_text("abc.def.ghi\n")
    url = (tmp_path / "token").as_uri()
    assert fetch_token(url, Credentials("", "")) == ("abc.def.ghi", None)
    with pytest.raises(FetchFailed, match="cannot be read"):
        fetch((tmp_path / "missing").as_uri())
    for bad in ("ftp://x/y", "nonsense", "http:///x", ""):
        with pytest.raises(ValueError, match="must be a URL"):
            check_url(bad)


def test_options_that_give_no_token() -> None:
    """Each is named."""
    with pytest.raises(ValueError, match=TOKEN_URL):
        fetch_of({}, {})
    with pytest.raises(ValueError, match=CLIENT_ID):
        fetch_of({TOKEN_URL: "https://x/token"}, {})
    with pytest.raises(ValueError, match=CLIENT_SECRET):
        fetch_of({TOKEN_URL: "https://x/token", CLIENT_ID: "app"}, {"scope": "a"})
    token, _ = fetch_of({}, {"unsecuredLoginStringClaim_sub": "bob"})()
    assert json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["sub"] == "bob"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_token_is_kept_and_renewed_in_time() -> None:
    """Fetched once while it is young, on a thread when it is old, by the caller after its end."""
    clock = Clock()
    fetched: list[str] = []
    allowed, renewed = threading.Event(), threading.Event()

    def fetch() -> tuple[str, float | None]:
        assert allowed.wait(30)
        fetched.append(threading.current_thread().name)
        renewed.set()
        return f"token{len(fetched)}", 100.0

    source = TokenSource(fetch, clock, clock)
    with pytest.raises(AuthenticationFailed, match="the first one is being fetched"):
        source.token_there()
    allowed.set()
    assert source.token() == "token1"  # the caller waits for the thread
    clock.now = 79
    assert source.token() == source.token_there() == "token1"
    clock.now = 81
    renewed.clear()
    allowed.clear()
    assert source.token() == "token1"
    allowed.set()
    assert renewed.wait(30)
    with source._lock:
        pass
    assert source.token() == "token2"
    assert set(fetched) == {"ottla-token"}
    clock.now = 1_000
    assert source.token() == "token3"
    assert fetched[-1] == threading.current_thread().name


def test_a_token_that_cannot_be_had() -> None:
    """The login fails with the reason; the next one asks again."""
    answers: list[tuple[str, float | None] | None] = [None, ("abc", None)]

    def fetch() -> tuple[str, float | None]:
        answer = answers.pop(0)
        if answer is None:
            raise FetchFailed("https://x/token answered 503")
        return answer

    source = TokenSource(fetch)
    with pytest.raises(AuthenticationFailed, match="no token: https://x/token answered 503"):
        source.token()
    assert source.token() == "abc"


def unsigned(expires_s: float) -> str:
    """A token that says when it ends."""
    return unsigned_token(
        {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "100"},
        expires_s - 100,
    )[0]


class Endpoint:
    """Gives the tokens in order; None: it fails."""

    def __init__(self, *tokens: str | None) -> None:
        self.tokens = list(tokens)

    def __call__(self) -> tuple[str, float | None]:
        token = self.tokens.pop(0)
        if token is None:
            raise FetchFailed("https://x/token answered 503")
        return token, None


def test_a_clock_that_is_set(caplog: pytest.LogCaptureFixture) -> None:
    """Set forward, a token has ended at once; set back, it ends no later. One that has ended when
    it comes is shown for a while all the same, for the clock may be wrong."""
    wall, monotonic = Clock(), Clock()
    wall.now, monotonic.now = 10_000, 50
    first, second, third = (unsigned(each) for each in (10_100, 10_200, 10_300))
    source = TokenSource(Endpoint(first, second, third), wall, monotonic)
    assert source.token() == first
    wall.now += 3_600
    assert source.token() == second
    assert "ended 3400 s ago by the clock of this machine" in caplog.text
    assert source.token() == source.token_there() == second
    wall.now -= 3_600
    monotonic.now += ENDED_S
    assert source.token() == third
    wall.now -= 3_600
    monotonic.now += 301
    with pytest.raises(IndexError):  # it is fetched anew
        source.token()


def test_an_endpoint_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """It is asked again after longer and longer pauses, each with a line; what is there holds until
    its end, and a line says that there is one again."""
    caplog.set_level(logging.INFO)
    clock = Clock()
    endpoint = Endpoint(*[None] * 6, "token", *[None] * 2)
    source = TokenSource(endpoint, clock, clock)
    waits = []
    for _ in range(6):
        source.first()
        waits.append(source.renew_if_due())
        with pytest.raises(AuthenticationFailed, match="no token: https://x/token answered 503"):
            source.token_there()
        clock.now += waits[-1] - 0.5
    assert waits == [1, 2, 4, 8, 10, 10]
    assert caplog.text.count("a token could not be fetched, again in") == 6
    source.first()
    assert "a token was fetched, after 6 times without" in caplog.text
    assert source.token_there() == "token"
    assert source.renew_if_due() == LIFETIME_UNKNOWN_S * RENEWED_AFTER
    clock.now += 59
    source.first()
    assert source.token_there() == "token"
    clock.now += 2
    with pytest.raises(AuthenticationFailed):
        source.token_there()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100_000,
    ],
)
def test_an_endpoint_that_does_not_speak_http(answer: bytes) -> None:
    """Whatever comes is a reason, and no other error."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            line, _ = listening.accept()
            with line:
                line.recv(65_536)
                line.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/token"
        with pytest.raises(FetchFailed, match="/token"):
            fetch_token(url, Credentials("app", "secret"))
