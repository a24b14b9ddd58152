"""What stands before every route: host names, CSRF, headers, the principal."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from ottla.console.access.guard import Visit, audit, form_of, principal_of, require
from ottla.console.access.middleware import BODY_BYTES_MAX, HEADERS, protect
from ottla.console.access.open import OpenAccess
from ottla.console.access.permissions import Grant, Permission, Principal, Role

VIEWER = Principal("vera", (Grant(Role.VIEWER, "main", "web*"),))


class NobodyLoggedIn(OpenAccess):
    def visit_of(self, request: HTTPConnection) -> Visit | None:
        return None


async def who(request: Request) -> Response:
    return PlainTextResponse(f"{principal_of(request).name} {request.state.csrf}")


async def change(request: Request) -> Response:
    require(request, Permission.CHANGE, "main", "web-1")
    audit(request, "create-topic", "main", "web-1", "done")
    return JSONResponse(dict(await form_of(request)))


async def read(request: Request) -> Response:
    require(request, Permission.READ, "main", request.query_params["topic"])
    return PlainTextResponse("read")


async def stream(request: Request) -> Response:
    access: OpenAccess = request.state.access

    async def chunks():  # type: ignore[no-untyped-def]
        yield b"first"
        access.principal = VIEWER
        yield b"second"

    return StreamingResponse(chunks())


async def fails(request: Request) -> Response:
    raise RuntimeError("a fault of ours")


def client(access: OpenAccess | None = None, **options: object) -> TestClient:
    app = Starlette(
        routes=[
            Route("/who", who),
            Route("/api/v1/who", who),
            Route("/change", change, methods=["POST"]),
            Route("/read", read),
            Route("/stream", stream),
            Route("/fails", fails),
            Route("/login", who),
        ]
    )
    protected = protect(app, access or OpenAccess(), **options)  # type: ignore[arg-type]
    return TestClient(
        protected,
        base_url="http://localhost:8084",
        raise_server_exceptions=False,
        follow_redirects=False,
    )


def csrf_of(browser: TestClient) -> str:
    return browser.get("/who").text.split()[1]


@pytest.mark.parametrize("path", ["/who", "/missing", "/fails", "/change"])
def test_every_answer_carries_the_security_headers(path: str) -> None:
    """Pages, errors and faults alike."""
    answer = client().get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert answer.headers["Cache-Control"] == "no-store"


def test_strict_transport_security_only_with_tls() -> None:
    """Over plain HTTP the header would be ignored; with TLS it stands in each answer."""
    assert "Strict-Transport-Security" not in client().get("/who").headers
    assert "Strict-Transport-Security" in client(tls=True).get("/who").headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8084", 200),
        ("127.0.0.1:8084", 200),
        ("[::1]:8084", 200),
        ("192.168.7.3", 200),
        ("console.example", 200),
        ("CONSOLE.example:8084", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
        ("[::1", 421),
        ("localhost@evil.example", 421),
    ],
)
def test_the_host_header_must_name_the_console(host: str, status: int) -> None:
    """A name of another site that leads to this address (DNS rebinding) is not answered."""
    browser = client(hosts=["console.example"])
    assert browser.get("/who", headers={"host": host}).status_code == status


def test_a_change_needs_the_token_of_the_session() -> None:
    """By header or form field; none, a wrong one and a foreign origin are refused."""
    access = OpenAccess()
    browser = client(access)
    token = csrf_of(browser)
    assert browser.post("/change").status_code == 403
    assert browser.post("/change", data={"csrf": "x" * 43}).status_code == 403
    assert browser.post("/change", headers={"X-CSRF-Token": "ü".encode()}).status_code == 403
    assert not access.entries
    answer = browser.post("/change", data={"csrf": token, "a": "1"})
    assert answer.json() == {"csrf": token, "a": "1"}
    answer = browser.post("/change", headers={"X-CSRF-Token": token})
    assert answer.status_code == 200
    foreign = {"X-CSRF-Token": token, "Origin": "http://evil.example"}
    assert browser.post("/change", headers=foreign).status_code == 403
    own = {"X-CSRF-Token": token, "Origin": "http://localhost:8084"}
    assert browser.post("/change", headers=own).status_code == 200
    assert [entry.action for entry in access.entries] == ["create-topic"] * 3


def test_a_role_holds_by_topic_pattern_and_its_refusal_is_audited() -> None:
    """A viewer of web* reads web-1, not orders; a change is refused and stands in the audit log."""
    access = OpenAccess(VIEWER)
    browser = client(access)
    assert browser.get("/read?topic=web-1").status_code == 200
    assert browser.get("/read?topic=orders").status_code == 403
    answer = browser.post("/change", headers={"X-CSRF-Token": csrf_of(browser)})
    assert answer.status_code == 403
    assert "vera may not change" in answer.text
    (entry,) = access.entries
    assert (entry.user, entry.action, entry.target, entry.result) == (
        "vera",
        "change",
        "web-1",
        "refused",
    )


def test_who_is_not_logged_in_is_sent_to_the_login() -> None:
    """A page leads to the login and back, the API answers 401, the login itself is open."""
    browser = client(NobodyLoggedIn())
    page = browser.get("/who?a=1&b=2", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=/who%3Fa%3D1%26b%3D2")
    api = browser.get("/api/v1/who", headers={"accept": "text/html"})
    assert api.status_code == 401
    assert api.json()["error"]["code"] == 401
    assert browser.post("/change").status_code == 401
    assert browser.get("/login").status_code == 403  # the route's own `principal_of`


def test_a_stream_ends_when_the_visitor_loses_a_role() -> None:
    """What a live tail sends after that does not arrive."""
    assert client().get("/stream").text == "first"


def test_a_body_has_a_limit() -> None:
    """Announced or not, more than BODY_BYTES_MAX is refused."""
    browser = client()
    headers = {"X-CSRF-Token": csrf_of(browser)}
    announced = {**headers, "Content-Length": str(BODY_BYTES_MAX + 1)}
    assert browser.post("/change", headers=announced).status_code == 413
    chunks = (b"x" * 1024 * 1024 for _ in range(BODY_BYTES_MAX // 1024 // 1024 + 1))
    assert browser.post("/change", headers=headers, content=chunks).status_code == 413


def test_a_form_has_a_limit_of_fields() -> None:
    """A form of very many fields costs no time: 400."""
    browser = client()
    fields = "&".join(f"a{number}=1" for number in range(2000))
    answer = browser.post(
        "/change",
        content=fields,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert answer.status_code == 400
