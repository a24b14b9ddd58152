"""Logging in at an OpenID Connect issuer: a fake one on loopback that lies where a test says so."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc.jwk import RSAKey
from starlette.testclient import TestClient

from ottla.console.access.issuer import Issuer
from ottla.console.access.names import Refused
from ottla.console.access.oidc_pages import FLOW_MS
from ottla.console.access.permissions import Grant, Role
from ottla.console.app import protected_app
from ottla.console.config.command_line import options_of
from ottla.console.config.options import ConfigError, OidcOptions, RoleOfClaim
from ottla.console.serving import access_of, listening

from .chromium import chromium
from .issuers import CLIENT_ID, SECRET, FakeIssuer, issuer_that_runs, of_the_secret, served
from .people import ADMIN_PASSWORD, People, cheap_passwords, log_in, post

ROLES = (
    RoleOfClaim("kafka-admins", "admin"),
    RoleOfClaim("shop", "operator", "main", "orders-*"),
)
AWAY = "http://127.0.0.1:1"  # nothing listens on this port


@pytest.fixture(scope="module")
def running() -> Iterator[FakeIssuer]:
    with issuer_that_runs() as issuer:
        yield issuer


@pytest.fixture
def issuer(running: FakeIssuer) -> FakeIssuer:
    running.begin_anew()
    return running


@pytest.fixture(autouse=True)
def cheap() -> Iterator[None]:
    with cheap_passwords():
        yield


def options(issuer_url: str, **changed: Any) -> OidcOptions:
    given = {
        "url": "http://localhost:8084", "client_id": CLIENT_ID, "client_secret": SECRET,
        "roles_claim": "realm.roles", "roles": ROLES, **changed,
    }  # fmt: skip
    return OidcOptions(issuer_url, **given)


class OidcPeople(People):
    """A console whose users may also log in at an issuer."""

    def __init__(self, data_dir: Path, issuer_url: str, **changed: Any) -> None:
        super().__init__(data_dir)
        self.access.issuer = Issuer(options(issuer_url, **changed))
        self.app = protected_app(self.console)  # anew: the pages of the issuer are there too


@pytest.fixture
def people(tmp_path: Path, issuer: FakeIssuer) -> OidcPeople:
    made = OidcPeople(tmp_path / "data", issuer.url)
    now_s = made.time_ms // 1000
    issuer.claims = {
        "sub": "1",
        "preferred_username": "alice",
        "realm": {"roles": ["shop", "others"]},
        "iat": now_s,
        "exp": now_s + 60,
    }
    return made


def begun(browser: TestClient, next_path: str = "/") -> str:
    """Where the issuer sends the browser back to."""
    answer = browser.get("/login/oidc", params={"next": next_path}, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    return httpx.get(answer.headers["location"]).headers["location"]


def came_back(browser: TestClient, address: str) -> Any:
    return browser.get(address, follow_redirects=False)


def audited(people: People) -> list[tuple[str, str, str, str]]:
    return [
        (each.user, each.action, each.result, each.detail)
        for _, each in people.access.store.audit()
    ]


def refused(people: People, answer: Any, sentence: str) -> None:
    """By the page of the login, with a line in the audit log and without a session."""
    assert answer.status_code == 403
    assert sentence in answer.text
    assert 'name="password"' in answer.text
    assert people.access.session_cookie not in answer.headers.get("set-cookie", "")
    [(_, action, result, detail), *_] = audited(people)
    assert (action, result) == ("login", "refused")
    assert sentence in detail


def test_a_person_logs_in_with_the_roles_of_the_claim(
    people: OidcPeople, issuer: FakeIssuer
) -> None:
    """The session is the console's own: pages, the roles, and signing out are as for others."""
    browser = people.browser()
    assert "Sign in with 127.0.0.1" in browser.get("/login").text
    answer = came_back(browser, begun(browser, "/c/main/topics?q=a"))
    assert answer.status_code == 200
    assert 'content="0;url=/c/main/topics?q=a"' in answer.text
    assert "SameSite=Strict" in answer.headers["set-cookie"]
    told = browser.get("/api/v1/me").json()
    assert told["name"] == "alice"
    assert people.access.user("alice").grants == (Grant(Role.OPERATOR, "main", "orders-*"),)
    assert audited(people)[0] == ("alice", "login", "done", "OpenID Connect")
    assert browser.get("/users").status_code == 403
    post(browser, "/logout", "/tokens")
    assert browser.get("/api/v1/me").status_code == 401


def test_roles_follow_the_issuer(people: OidcPeople, issuer: FakeIssuer) -> None:
    """Each login has those of the moment; whoever has none any more loses the sessions too."""
    first, second = people.browser(), people.browser()
    came_back(first, begun(first))
    issuer.claims["realm"] = {"roles": "kafka-admins"}
    came_back(second, begun(second))
    assert first.get("/users").status_code == 200
    issuer.claims["realm"] = {"roles": []}
    third = people.browser()
    refused(people, came_back(third, begun(third)), "No role of this console")
    for browser in (first, second):
        assert browser.get("/api/v1/me").status_code == 401


def test_who_has_no_role_is_refused_and_not_kept(people: OidcPeople, issuer: FakeIssuer) -> None:
    """Nor is one whose name can be no user's."""
    for changed in ({"realm": {}}, {"realm": None}, {"realm": {"roles": [["shop"]]}}):
        issuer.claims |= changed
        browser = people.browser()
        refused(people, came_back(browser, begun(browser)), "No role of this console")
    issuer.claims |= {"realm": {"roles": ["shop"]}, "preferred_username": "<b>alice</b>"}
    browser = people.browser()
    answer = came_back(browser, begun(browser))
    assert "<b>alice" not in answer.text
    refused(people, answer, "1 to 64 characters")
    assert [each.name for each in people.access.users()] == ["admin"]


def set_to(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda claims: claims.update({name: value})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (set_to("nonce", "another"), "of another login"),
        (lambda claims: claims.pop("nonce"), "of another login"),
        (set_to("aud", "another"), "for another client"),
        (set_to("aud", []), "for another client"),
        (set_to("aud", [CLIENT_ID, "another"]), "made for another client"),
        (set_to("azp", "another"), "made for another client"),
        (set_to("iss", "https://another.example"), "of another issuer"),
        (lambda claims: claims.update(exp=claims["exp"] - 200), "has expired"),
        (lambda claims: claims.pop("exp"), "has no exp"),
        (set_to("exp", "never"), "has no exp"),
        (lambda claims: claims.update(iat=claims["iat"] + 3600), "of the future"),
        (lambda claims: claims.update(nbf=claims["iat"] + 3600), "of the future"),
        (set_to("sub", ""), "has no sub"),
    ],
)
def test_a_token_that_is_not_of_this_login_is_refused(
    people: OidcPeople,
    issuer: FakeIssuer,
    change: Callable[[dict[str, Any]], None],
    sentence: str,
) -> None:
    """Whatever of it is wrong, though the issuer signed it."""
    issuer.change = change
    browser = people.browser()
    refused(people, came_back(browser, begun(browser)), sentence)
    assert browser.get("/api/v1/me").status_code == 401


def test_a_token_that_the_issuer_did_not_sign_is_refused(
    people: OidcPeople, issuer: FakeIssuer
) -> None:
    """By another key of the same name, by the client's secret, by none, or by an unknown key."""
    foreign_key = RSAKey.generate_key(2048, {"kid": "first"})
    for key, header, sentence in (
        (foreign_key, {"alg": "RS256", "kid": "first"}, "signature of the ID token is wrong"),
        (foreign_key, {"alg": "RS256", "kid": "second"}, "not among the issuer"),
        (of_the_secret(), {"alg": "HS256"}, "not signed by a private key"),
        (of_the_secret(), {"alg": "none"}, "not signed by a private key"),
    ):
        issuer.key, issuer.header = key, header
        browser = people.browser()
        refused(people, came_back(browser, begun(browser)), sentence)


def test_a_new_key_of_the_issuer_is_fetched(
    people: OidcPeople, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once what is known is old enough to be asked again."""
    came_back(browser := people.browser(), begun(browser))
    issuer.key = RSAKey.generate_key(2048, {"kid": "second"})
    issuer.published.append(issuer.key)
    issuer.header = {"alg": "RS256", "kid": "second"}
    refused(people, came_back(browser, begun(browser)), "not among the issuer")
    monkeypatch.setattr("ottla.console.access.issuer.AGAIN_S", -1.0)
    assert came_back(browser, begun(browser)).status_code == 200
    assert issuer.asked.count("keys") == 2
    assert issuer.asked.count("discovery") == 1


def test_only_the_browser_that_began_comes_back(people: OidcPeople, issuer: FakeIssuer) -> None:
    """Another state, another browser, a changed or an old cookie, a second time: no code is sent to
    the issuer."""
    browser, other = people.browser(), people.browser()
    address = begun(browser)
    sentence = "not begun in this browser"
    refused(people, came_back(other, address), sentence)
    begun(other)
    refused(people, came_back(other, address), sentence)
    refused(people, came_back(browser, re.sub("state=[^&]*", "state=x", address)), sentence)
    address = begun(browser)
    people.time_ms += FLOW_MS + 1
    refused(people, came_back(browser, address), "took too long")
    people.time_ms -= FLOW_MS + 1
    address = begun(browser)
    [name] = [each for each in browser.cookies if "_oidc_" in each]
    text, _, mac = browser.cookies[name].partition(".")
    for changed in (f"A{text[1:]}.{mac}", f"{text}.", f".{mac}", text, "é"):
        other.cookies.clear()
        answer = other.get(address, headers={b"Cookie": f"{name}={changed}".encode()})
        refused(people, answer, sentence)
    assert "token" not in issuer.asked
    assert came_back(browser, address).status_code == 200
    refused(people, came_back(browser, address), sentence)


def test_what_the_issuer_says_against_a_login_is_shown(
    people: OidcPeople, issuer: FakeIssuer
) -> None:
    """Its word for it, as text; an answer in the name of another issuer is refused (RFC 9207)."""
    browser = people.browser()
    back, _, query = begun(browser).partition("?")
    state = httpx.QueryParams(query)["state"]
    answer = browser.get(back, params={"state": state, "error": "access_denied<i>"})
    assert "<i>" not in answer.text
    refused(people, answer, "did not let you in")
    for wrong, sentence in ((r"iss=[^&]*", "Another issuer"), (r"code=[^&]*", "sent no code")):
        address = re.sub(wrong, f"{wrong[:4]}=", begun(browser)).replace("==", "=")
        refused(people, came_back(browser, address), sentence)
    address = re.sub(r"code=[^&]*", "code=guessed", begun(browser))
    refused(people, came_back(browser, address), "The issuer refused the login")


@pytest.mark.parametrize(
    "next_path",
    ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)",
     "/\n//evil.example", "/" + "a" * 1500],
)  # fmt: skip
def test_no_login_leads_to_another_site(people: OidcPeople, next_path: str) -> None:
    """The way back leads to the console's start instead."""
    browser = people.browser()
    answer = came_back(browser, begun(browser, next_path))
    assert 'content="0;url=/"' in answer.text
    assert "evil" not in answer.text


def test_nobody_gets_the_account_of_another(people: OidcPeople, issuer: FakeIssuer) -> None:
    """Neither a local user's, nor that of another person of the same name at the issuer."""
    sentence = "who is not that one"
    issuer.claims["preferred_username"] = "admin"
    browser = people.browser()
    answer = came_back(browser, begun(browser))
    refused(people, answer, sentence)
    issuer.claims["preferred_username"] = "alice"
    assert came_back(browser, begun(browser)).status_code == 200
    issuer.claims["sub"] = "2"
    refused(people, came_back(browser, begun(browser)), sentence)
    issuer.claims["preferred_username"] = "ALICE"
    refused(people, came_back(browser, begun(browser)), "already")


def test_a_person_is_a_user_without_a_password(people: OidcPeople, issuer: FakeIssuer) -> None:
    """No password works, none can be set; roles are the issuer's; who is disabled stays out; the
    last admin of the console's own stays."""
    admin, browser = people.admin(), people.browser()
    issuer.claims["realm"] = {"roles": ["kafka-admins"]}
    came_back(browser, begun(browser))
    assert log_in(people.browser(), "alice", "").status_code == 403
    with pytest.raises(Refused, match="not kept here"):
        people.access.reset_password("alice")
    with pytest.raises(Refused, match="come from the issuer"):
        people.access.set_grants("alice", [Grant(Role.VIEWER)])
    with pytest.raises(Refused, match="Nobody would be left"):
        people.access.set_disabled("admin", True)
    page = admin.get("/users").text
    assert '<span class="badge">oidc</span>' in page
    post(admin, "/users/alice/disabled", disabled="1")
    assert browser.get("/api/v1/me").status_code == 401
    refused(people, came_back(browser, begun(browser)), "disabled")


def test_local_users_get_in_while_the_issuer_is_away(tmp_path: Path) -> None:
    """A sentence says so; and the first password is still made where nobody had it."""
    people = OidcPeople(tmp_path, AWAY)
    browser = people.browser()
    answer = browser.get("/login/oidc?next=/topics", follow_redirects=False)
    assert answer.status_code == 502
    assert "127.0.0.1 cannot be asked now. Users of the console itself can sign in." in answer.text
    assert 'name="next" value="/topics"' in answer.text
    people.admin()
    assert log_in(browser, "admin", ADMIN_PASSWORD).status_code == 200


@pytest.mark.parametrize(
    "metadata",
    [{"issuer": "https://another.example"}, {"token_endpoint": "http://another.example/token"},
     {"jwks_uri": None}, {"authorization_endpoint": "javascript:alert(1)"}],
)  # fmt: skip
def test_what_is_no_discovery_of_the_issuer_is_not_used(
    people: OidcPeople, issuer: FakeIssuer, metadata: dict[str, Any]
) -> None:
    """Of another issuer, without an address, or with one that is not encrypted."""
    issuer.metadata = metadata
    answer = people.browser().get("/login/oidc", follow_redirects=False)
    assert answer.status_code == 502
    assert "cannot be asked now" in answer.text


def test_secrets_are_in_no_page_log_or_audit(
    people: OidcPeople, issuer: FakeIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    """The client's secret, codes and tokens, of logins that succeed and fail."""
    caplog.set_level(logging.INFO)
    browser, pages, hidden = people.browser(), [], [SECRET]
    for change in (lambda claims: None, set_to("nonce", "another")):
        issuer.change = change
        address = begun(browser)
        hidden.append(str(httpx.URL(address).params["code"]))
        pages.append(came_back(browser, address).text)
    hidden += issuer.tokens
    ours = [each.getMessage() for each in caplog.records if each.name.startswith("ottla")]
    told = "\n".join([*pages, *ours, repr(audited(people)), repr(people.access.issuer.options)])
    assert len(hidden) == 5
    assert "ottla-console" in told
    for each in hidden:
        assert each not in told


def test_a_real_browser_comes_back_with_its_session(people: OidcPeople, issuer: FakeIssuer) -> None:
    """From a page of another site, whose link no strict cookie goes along with."""
    at = listening("127.0.0.1", 0)
    url = f"http://localhost:{at.getsockname()[1]}"
    people.access.issuer = Issuer(options(issuer.url, url=url))
    with served(people.app, at), chromium() as browser:
        page = browser.new_page()
        page.goto(f"{url}/c/main/topics")
        page.get_by_text("Sign in with 127.0.0.1").click()
        page.locator("#yes").click()
        page.wait_for_url(f"{url}/c/main/topics")
        assert page.locator("h1").inner_text() == "Topics"
        page.reload()
        assert page.locator("h1").inner_text() == "Topics"


TABLE = """\
[clusters.main]
bootstrap_servers = "b:1"
[oidc]
issuer = "https://id.example.com/realm"
url = "https://console.example.com/"
client_id = "ottla-console"
client_secret_file = "oidc.secret"
roles = [{ value = "kafka-admins", role = "admin", topics = "a*" }]
"""


def config_of(tmp_path: Path, text: str) -> str:
    (tmp_path / "oidc.secret").write_text(f"{SECRET}\n")
    path = tmp_path / "console.toml"
    path.write_text(text)
    return str(path)


def test_the_file_says_whose_users_log_in(tmp_path: Path) -> None:
    """The secret is in a file of its own; the console is asked for under its name there."""
    found = options_of(config=config_of(tmp_path, TABLE), data_dir=str(tmp_path / "data"))
    assert found.oidc is not None
    assert found.oidc.url == "https://console.example.com"
    assert found.oidc.client_secret == SECRET
    assert found.oidc.roles == (RoleOfClaim("kafka-admins", "admin", "*", "a*"),)
    assert found.names == ("console.example.com",)
    access = access_of(found)
    assert access.issuer.redirect_uri == "https://console.example.com/login/oidc/callback"
    access.close()


def test_without_authlib_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And how to get it; nothing was made yet."""
    monkeypatch.setitem(sys.modules, "authlib", None)
    monkeypatch.delitem(sys.modules, "ottla.console.access.issuer")
    data = tmp_path / "data"
    with pytest.raises(ConfigError, match=r"package authlib\nTry: .*console-oidc"):
        access_of(options_of(config=config_of(tmp_path, TABLE), data_dir=str(data)))
    assert not data.exists()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('issuer = "https://id.example.com/realm"\n', "", "oidc: issuer is missing"),
        ("https://id.", "http://id.", "oidc.issuer must be a URL of https"),
        ("https://id.", "https://me:pw@id.", "oidc.issuer must be a URL of https"),
        ("example.com/\"", "example.com/ke\"", "oidc.url must have no path"),
        ('"ottla-console"', '""', "oidc.client_id must be printable"),
        ("oidc.secret", "none.secret", "cannot read"),
        ("oidc.secret", "empty.secret", "is empty"),
        ('"admin"', '"king"', "oidc.roles: role must be one of viewer, operator, admin"),
        ('role = "admin", ', "", "oidc.roles: role is missing"),
        ('"a*"', '"' + "a" * 300 + '"', "oidc.roles: The pattern of topics"),
        ('[{ value', '3 # [{ value', "oidc.roles must be a list"),
        ("client_id", "client", "there is no option 'client'"),
        ("[oidc]", "[oidc]\nscopes = ['profile']", "oidc.scopes must have openid"),
        ("[clusters", "login = false\n[clusters", "oidc says who logs in"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_named(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    """The option, the rule, the value, and what to try; never the secret."""
    (tmp_path / "empty.secret").write_text("\n")
    assert old in TABLE
    with pytest.raises(ConfigError) as raised:
        options_of(config=config_of(tmp_path, TABLE.replace(old, new)))
    assert sentence in str(raised.value)
    assert "\nTry: " in str(raised.value)
    assert SECRET not in str(raised.value)
