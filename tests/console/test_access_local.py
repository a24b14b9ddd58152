"""Users, sessions, tokens and the audit log of the console."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import HTTPConnection

from ottla.console.access import passwords
from ottla.console.access.local import (
    SESSION_IDLE_MS,
    SESSION_MAX_MS,
    SESSIONS_PER_USER_MAX,
    LocalAccess,
)
from ottla.console.access.login_limit import PAIR_MAX, WINDOW_MS
from ottla.console.access.names import Refused
from ottla.console.access.permissions import Grant, Permission, Principal, Role
from ottla.console.access.store import AccessFileError, Store

from .people import ADMIN_PASSWORD, People, change_password, cheap_passwords, log_in, post

VIEWER = Grant(Role.VIEWER)


@pytest.fixture(autouse=True)
def cheap() -> Iterator[None]:
    with cheap_passwords():
        yield


@pytest.fixture
def people(tmp_path: Path) -> People:
    return People(tmp_path / "data")


def test_the_first_start_makes_an_admin_with_a_password_for_once(people: People) -> None:
    """Who logs in with it sees nothing but the page to choose a password, and then all."""
    browser = people.browser()
    assert people.access.first_password is not None
    answer = log_in(browser, "admin", people.access.first_password)
    assert answer.url.path == "/password"
    assert browser.get("/c/main/").url.path == "/password"
    assert browser.get("/users").url.path == "/password"
    answer = change_password(browser, people.access.first_password, ADMIN_PASSWORD)
    assert answer.url.path == "/c/main/"
    assert log_in(people.browser(), "admin", people.access.first_password).status_code == 403
    assert log_in(people.browser(), "admin", ADMIN_PASSWORD).status_code == 200


def test_a_start_prints_a_new_password_until_one_was_chosen(tmp_path: Path) -> None:
    """A password that nobody noted is not the end; after the choice no start makes another."""
    first = People(tmp_path)
    second = People(tmp_path)
    assert second.access.first_password not in (None, first.access.first_password)
    second.admin()
    third = People(tmp_path)
    assert third.access.first_password is None
    assert third.admin().get("/users").status_code == 200


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    """The directory, the database and what SQLite puts beside it."""
    data = tmp_path / "data"
    People(data).admin()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in data.iterdir()}
    assert set(modes.values()) == {0o600}
    assert "access.db" in modes


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """No SQLite file, or one of a newer form: the sentence names it and what to do."""
    (tmp_path / "access.db").write_bytes(b"no database" * 1000)
    with pytest.raises(AccessFileError, match=r"access\.db.*\nTry: "):
        Store(tmp_path)
    (tmp_path / "newer").mkdir()
    store = Store(tmp_path / "newer")
    store._connection.execute("PRAGMA user_version=99")
    store.close()
    with pytest.raises(AccessFileError, match="a newer one wrote it"):
        Store(tmp_path / "newer")


def test_secrets_are_neither_logged_nor_kept_nor_shown(
    people: People, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Passwords, session ids and tokens: not in the log, the files, the audit log or a page; a new
    token and a one-time password stand in the one answer that made them."""
    caplog.set_level(logging.DEBUG)
    one_time = people.access.first_password
    browser = people.admin()
    made = post(browser, "/users", name="vera", role="viewer", clusters="*", topics="*")
    veras = made.text.split('id="one-time-password">')[1].split("<")[0]
    made = post(browser, "/tokens", name="ci", role="viewer", clusters="*", topics="*", days="30")
    token = made.text.split('id="token">')[1].split("<")[0]
    session = dict(browser.cookies)[people.access.session_cookie]
    wrong = "an even wronger guess"
    log_in(people.browser(), "admin", wrong)
    secrets = [one_time, veras, token, session, wrong, ADMIN_PASSWORD]
    pages = "".join(browser.get(page).text for page in ("/users", "/tokens", "/audit", "/c/main/"))
    files = b"".join(file.read_bytes() for file in (tmp_path / "data").iterdir())
    assert b"vera" in files
    assert "vera" in pages
    assert "vera" in caplog.text
    for secret in secrets:
        assert secret is not None
        assert len(secret) > 10
        assert secret not in caplog.text
        assert secret not in pages
        assert secret.encode() not in files


def test_the_cookie_is_strict(tmp_path: Path) -> None:
    """No script reads it and no other site sends it; with TLS it is never sent without."""
    browser = People(tmp_path).browser()
    cookie = browser.get("/login").headers["set-cookie"]
    assert "; HttpOnly; SameSite=Strict" in cookie
    assert "Secure" not in cookie
    with_tls = LocalAccess(Store(tmp_path), tls=True)
    made = with_tls._cookie(with_tls.session_cookie, "x")
    assert made.startswith("__Host-")
    assert made.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")


def test_logins_are_limited(people: People) -> None:
    """After PAIR_MAX wrong passwords also the right one has to wait; a name that does not exist is
    answered the same."""
    people.admin()
    browser = people.browser()
    for name in ("admin", "nobody"):
        texts = {log_in(browser, name, "wrong password").status_code for _ in range(PAIR_MAX)}
        assert texts == {403}
    answer = log_in(browser, "admin", ADMIN_PASSWORD)
    assert answer.status_code == 403
    assert "Too many attempts" in answer.text
    assert "Too many attempts" in log_in(browser, "nobody", "wrong password").text
    people.time_ms += WINDOW_MS
    assert log_in(browser, "admin", ADMIN_PASSWORD).status_code == 200
    entries = people.access.store.audit(containing="login")
    assert {entry.result for _, entry in entries} == {"refused", "done"}


def test_who_does_not_exist_costs_as_much(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of an answer does not tell whether there is a user: scrypt runs once for both."""
    people.admin()
    count = 0

    def verify(password: str, hashed: str) -> bool:
        nonlocal count
        count += 1
        return False

    monkeypatch.setattr(passwords, "verify", verify)
    log_in(people.browser(), "admin", "wrong password")
    assert count == 1
    log_in(people.browser(), "nobody", "wrong password")
    assert count == 2


def test_sessions_end(people: People) -> None:
    """By logout, when unused, at last in any case, and all others by a new password."""
    browser, other = people.admin(), people.admin()
    assert post(browser, "/logout").url.path == "/login"
    page = {"accept": "text/html"}
    assert browser.get("/users", headers=page).url.path == "/login"
    assert other.get("/users", headers=page).url.path == "/users"
    people.time_ms += SESSION_IDLE_MS + 1
    assert other.get("/users", headers=page).url.path == "/login"
    used = people.admin()
    began_ms = people.time_ms
    while people.time_ms + SESSION_IDLE_MS < began_ms + SESSION_MAX_MS:
        people.time_ms += SESSION_IDLE_MS
        assert used.get("/users", headers=page).url.path == "/users"
    people.time_ms = began_ms + SESSION_MAX_MS + 1
    assert used.get("/users", headers=page).url.path == "/login"
    browser, other = people.admin(), people.admin()
    change_password(browser, ADMIN_PASSWORD, "another long password")
    assert browser.get("/users", headers=page).url.path == "/users"
    assert other.get("/users", headers=page).url.path == "/login"


def test_sessions_outlive_a_restart_and_are_bounded(tmp_path: Path) -> None:
    """Who was logged in still is; of very many sessions of one user the oldest ends."""
    people = People(tmp_path)
    browser = people.admin()
    cookies = dict(browser.cookies)
    again = People(tmp_path)
    restarted = again.browser()
    restarted.cookies.update(cookies)
    assert restarted.get("/users").url.path == "/users"
    for _ in range(SESSIONS_PER_USER_MAX):
        again.time_ms += 1
        again.access.open_session("admin", "address")
    assert len(again.access.sessions_of("admin")) == SESSIONS_PER_USER_MAX
    assert restarted.get("/users", headers={"accept": "text/html"}).url.path == "/login"
    assert len(again.access.store.sessions()) == SESSIONS_PER_USER_MAX


def test_the_way_back_after_login_stays_here(people: People) -> None:
    """/login leads to the page that was asked for, never to another site."""
    people.admin()
    browser = people.browser()
    browser.follow_redirects = False
    for wanted in ("https://evil.example/", "//evil.example", "/\\evil.example", "evil", "/\n/e"):
        answer = log_in(browser, "admin", ADMIN_PASSWORD, wanted)
        assert answer.headers["location"] == "/", wanted
        post(browser, "/logout")
    answer = log_in(browser, "admin", ADMIN_PASSWORD, "/c/main/topics?sort=size")
    assert answer.headers["location"] == "/c/main/topics?sort=size"


def test_a_user_sees_and_changes_what_the_roles_allow(people: People) -> None:
    """A viewer of some topics sees no users, no audit log, no other topic, and adds no user."""
    people.admin()
    vera = people.user("vera", [Grant(Role.VIEWER, "main", "topic-0001")])
    assert vera.get("/users").status_code == 403
    assert vera.get("/audit").status_code == 403
    overview = vera.get("/c/main/").text
    assert "topic-0001" in overview
    assert "topic-0002" not in overview
    answer = post(vera, "/users", name="eve", role="admin", clusters="*", topics="*")
    assert answer.status_code == 403
    assert [user.name for user in people.access.users()] == ["admin", "vera"]
    (_, entry), *_ = people.access.store.audit()
    assert (entry.user, entry.action, entry.result) == ("vera", "administer", "refused")


def test_a_pattern_that_matches_one_cluster_is_no_admin_of_the_console(people: People) -> None:
    """Only who is admin in all clusters for all topics may change users."""
    for grant in (Grant(Role.ADMIN, "?"), Grant(Role.ADMIN, "main"), Grant(Role.ADMIN, "*", "a*")):
        people.access.add_user(name := f"u{len(people.access.users())}", [grant])
        user = people.access.user(name)
        assert not Principal(user.name, user.grants).administers()
    with pytest.raises(Refused, match="pattern of clusters"):
        people.access.add_user("other", [Grant(Role.ADMIN, "")])


def test_an_admin_changes_users(people: People) -> None:
    """Roles hold at once, a disabled user is out at once, a deleted one is gone; each change stands
    in the audit log, and the last admin stays."""
    admin = people.admin()
    vera = people.user("vera", [VIEWER])
    assert vera.get("/users").status_code == 403
    assert "roles of vera" in post(
        admin, "/users/vera/roles", role="admin", clusters="*", topics="*"
    ).text.replace("The ", "")
    assert vera.get("/users").status_code == 200
    post(admin, "/users/vera/disabled", disabled="1")
    assert vera.get("/users", headers={"accept": "text/html"}).url.path == "/login"
    assert log_in(people.browser(), "vera", "a long phrase for vera").status_code == 403
    post(admin, "/users/vera/disabled", disabled="0")
    assert "type the name" in post(admin, "/users/vera/delete", confirm="Vera").text
    assert len(people.access.users()) == 2
    post(admin, "/users/vera/delete", confirm="vera")
    assert [user.name for user in people.access.users()] == ["admin"]
    for path, fields in (
        ("delete", {"confirm": "admin"}),
        ("disabled", {"disabled": "1"}),
        ("roles", {"role": "viewer", "clusters": "*", "topics": "*"}),
    ):
        answer = post(admin, f"/users/admin/{path}", **fields)
        assert "Nobody would be left" in answer.text
    done = [e.action for _, e in people.access.store.audit() if e.result == "done"]
    assert done[:4] == ["delete-user", "enable-user", "disable-user", "set-roles"]
    page = admin.get("/audit?search=DELETE-user").text
    assert "delete-user" in page
    assert "enable-user" not in page


def test_a_token_may_what_its_user_and_its_own_role_allow(people: People) -> None:
    """It is bounded by both, ends, and is deleted by its user or an admin only."""
    admin = people.admin()
    vera = people.user("vera", [Grant(Role.OPERATOR, "*", "web*")])
    eve = people.user("eve", [VIEWER])
    secret, token = people.access.add_token("vera", "ci", Grant(Role.ADMIN, "main"), 7)
    headers = {"authorization": f"Bearer {secret}"}

    def principal() -> Principal | None:
        sent = [(b"authorization", f"Bearer {secret}".encode())]
        scope = {"type": "http", "path": "/api/v1/x", "headers": sent, "query_string": b""}
        visit = people.access.visit_of(HTTPConnection({**scope, "server": ("localhost", 80)}))
        return visit.principal if visit is not None else None

    found = principal()
    assert found is not None
    assert found.may(Permission.PRODUCE, "main", "web-1")
    assert not found.may(Permission.PRODUCE, "other", "web-1")  # the token's cluster
    assert not found.may(Permission.CHANGE, "main", "web-1")  # the user's role
    assert not found.may(Permission.VIEW, "main", "orders")  # the user's topics
    assert people.browser().get("/c/main/", headers=headers).status_code == 401  # the API only
    answer = post(eve, f"/tokens/{token.id}/delete")
    assert answer.status_code == 404
    assert principal() is not None
    assert "ci" in admin.get("/tokens").text
    assert "ci" not in eve.get("/tokens").text
    _, other = people.access.add_token("vera", "other", VIEWER, None)
    assert post(vera, f"/tokens/{other.id}/delete").url.path == "/tokens"
    assert [each.id for each in people.access.tokens()] == [token.id]
    people.time_ms += 7 * 24 * 3600_000
    assert principal() is None
    people.access.delete_user("vera")
    assert people.access.tokens() == []


def test_read_only_shows_and_changes_nothing(tmp_path: Path) -> None:
    """Also the admin only looks; logging in and one's own password go on."""
    people = People(tmp_path, read_only=True)
    admin = people.admin()
    assert admin.get("/users").status_code == 200
    assert "A new user" not in admin.get("/users").text
    answer = post(admin, "/users", name="eve", role="admin", clusters="*", topics="*")
    assert answer.status_code == 403
    assert len(people.access.users()) == 1


def test_hostile_names_stay_text(people: People) -> None:
    """Markup in what people type appears as text: in errors, tokens and the audit log."""
    markup = "<img src=x onerror=alert(1)>"
    admin = people.admin()
    pages = [
        log_in(people.browser(), markup, markup).text,
        post(admin, "/users", name=markup, role="viewer", clusters="*", topics="*").text,
        post(
            admin, "/tokens", name=markup, role="viewer", clusters=markup, topics="*", days="7"
        ).text,
        admin.get("/audit").text,
        admin.get(f"/audit?search={markup}").text,
    ]
    for page in pages:
        assert markup not in page
        assert "&lt;img" in page


def test_a_hash_bears_its_own_cost() -> None:
    """A password hashed at another cost is still verified; a wrong one is not."""
    hashed = passwords.hash_password("correct horse")
    assert passwords.verify("correct horse", hashed)
    assert not passwords.verify("correct horsf", hashed)
    assert not passwords.verify("x" * 100_000, hashed)
    assert passwords.hash_password("correct horse") != hashed
