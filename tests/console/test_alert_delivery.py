"""Messages to real receivers on loopback: HTTP and SMTP, retried, kept through a crash."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from ottla.console.alerts.payloads import WECOM_BYTES_MAX, payload_of
from ottla.console.alerts.rounds import Line, Message, trial_message
from ottla.console.alerts.rules import Encryption, Receiver, ReceiverKind, Rule, RuleError
from ottla.console.alerts.sending import SendError, send
from ottla.console.alerts.service import AlertService
from ottla.console.alerts.store import DeliveryState
from ottla.console.series import Measure

from .pictures import HOSTILE, TAKEN_MS, FakeCluster, picture
from .receivers import PATIENCE_S, HttpReceiver, SmtpReceiver

LAG = Rule("lag", Measure.GROUP_LAG, threshold=5, for_s=0, receivers=("ops",))
HOOKS = [kind for kind in ReceiverKind if kind is not ReceiverKind.EMAIL]


@pytest.fixture
def http() -> Iterator[HttpReceiver]:
    with HttpReceiver() as receiver:
        yield receiver


def service(data_dir: Path, *receivers: Receiver, **options: object) -> AlertService:
    cluster = FakeCluster(picture(groups=2))
    made = AlertService(
        {"main": cluster},
        data_dir,
        clock=lambda: TAKEN_MS,
        **options,  # type: ignore[arg-type]
    )
    for receiver in receivers:
        if receiver.name not in made.receivers():
            made.put_receiver(receiver)
    return made


def states(of: AlertService) -> list[tuple[DeliveryState, int]]:
    return [(each.state, each.attempts) for each in of.store.deliveries()]


def message(text: str = "group web lags") -> Message:
    line = Line("fired", text, "web", "", 7.0, TAKEN_MS)
    return Message(
        f"[FIRING] {text}", "lag", "main", "critical", "firing", TAKEN_MS, (line,), 2, "see wiki"
    )


@pytest.mark.parametrize("kind", HOOKS)
def test_each_kind_of_webhook_gets_its_form(http: HttpReceiver, kind: ReceiverKind) -> None:
    """The title, the alert, how many more and the note arrive, where that service looks for it."""
    send(Receiver("ops", kind, url=http.url), message(), TAKEN_MS)
    request = http.next()
    assert request.path.startswith("/hook?access_token=hidden")
    assert request.headers["Content-Type"] == "application/json; charset=utf-8"
    body = request.body
    text = {
        ReceiverKind.SLACK: lambda: body["text"] + body["attachments"][0]["text"],
        ReceiverKind.DINGTALK: lambda: body["markdown"]["title"] + body["markdown"]["text"],
        ReceiverKind.WECOM: lambda: body["markdown"]["content"],
        ReceiverKind.FEISHU: lambda: body["content"]["text"],
        ReceiverKind.JSON: lambda: body["text"],
    }[kind]()
    for part in ("FIRING", "group web lags", "and 2 more", "see wiki"):
        assert part in text
    if kind is ReceiverKind.JSON:
        assert body["form"] == 1
        assert body["status"] == "firing"
        assert body["alerts"][0]["subject"] == "web"


def test_dingtalk_and_feishu_are_signed(http: HttpReceiver) -> None:
    """As their documents say: over the time and the secret, in the address or in the body."""
    secret = "SEC-of-a-robot"
    send(Receiver("a", ReceiverKind.DINGTALK, url=http.url, secret=secret), message(), TAKEN_MS)
    query = parse_qs(urlsplit(http.next().path).query)
    expected = hmac.new(secret.encode(), f"{TAKEN_MS}\n{secret}".encode(), hashlib.sha256)
    assert query["timestamp"] == [str(TAKEN_MS)]
    assert query["sign"] == [base64.b64encode(expected.digest()).decode()]
    send(Receiver("a", ReceiverKind.FEISHU, url=http.url, secret=secret), message(), TAKEN_MS)
    body = http.next().body
    expected = hmac.new(f"{TAKEN_MS // 1000}\n{secret}".encode(), b"", hashlib.sha256)
    assert body["timestamp"] == str(TAKEN_MS // 1000)
    assert body["sign"] == base64.b64encode(expected.digest()).decode()


def test_names_cannot_call_everybody() -> None:
    """A topic named like a command of the service (<!channel>, <at …>, a link) stays text, and a
    very long one is cut to what the service takes."""
    hostile = f"<!channel> [x](http://evil.example) <at user_id='all'> {HOSTILE}"
    for kind in HOOKS:
        receiver = Receiver("a", kind, url="http://localhost/")
        body = json.loads(payload_of(receiver, message(hostile), TAKEN_MS).body)
        body.get("markdown", {}).pop("title", None)  # a plain text of DingTalk's
        text = json.dumps(body).replace("\\\\<", "")
        if kind is not ReceiverKind.JSON:
            assert "<!channel>" not in text
            assert "<at user_id" not in text
    long = payload_of(
        Receiver("a", ReceiverKind.WECOM, url="http://x/"), message("ü" * 9000), TAKEN_MS
    )
    assert len(long.body) < WECOM_BYTES_MAX + 100


@pytest.mark.parametrize(
    ("kind", "status", "body", "sentence", "final"),
    [
        (ReceiverKind.JSON, 500, b"", "HTTP 500", False),
        (ReceiverKind.JSON, 429, b"", "HTTP 429", False),
        (ReceiverKind.JSON, 404, b"", "HTTP 404", True),
        (ReceiverKind.JSON, 302, b"", "HTTP 302", True),
        (ReceiverKind.DINGTALK, 200, b'{"errcode": 31, "errmsg": "sign"}', "31: sign", False),
        (ReceiverKind.WECOM, 200, b'{"errcode": 93000}', "errcode 93000", False),
        (ReceiverKind.FEISHU, 200, b'{"code": 19021, "msg": "sign"}', "19021: sign", False),
        (ReceiverKind.FEISHU, 200, b"<html>", "no JSON object", False),
    ],
)  # fmt: skip
def test_an_answer_that_refuses_is_an_error(
    http: HttpReceiver, kind: ReceiverKind, status: int, body: bytes, sentence: str, final: bool
) -> None:
    """By its status or, as some services do, by a code in a body of status 200; the error does not
    repeat the address, and says when to come back."""
    http.answer = lambda request: (status, {"Retry-After": "7", "Location": "/x"}, body)
    with pytest.raises(SendError, match=sentence) as caught:
        send(Receiver("ops", kind, url=http.url), message(), TAKEN_MS)
    assert caught.value.final is final
    assert caught.value.after_s == (7 if status != 200 else 0)
    assert "hidden" not in str(caught.value)


def test_mail_arrives() -> None:
    """At all addresses, with subject and text; what an SMTP server refuses is an error."""
    with SmtpReceiver() as smtp:
        receiver = Receiver(
            "mail", ReceiverKind.EMAIL, host="127.0.0.1", port=smtp.port,
            encryption=Encryption.NONE, sender="ottla@example.org", to=("a@b.c", "d@e.f"),
        )  # fmt: skip
        send(receiver, message("group wéb lags"), TAKEN_MS)
        mail = smtp.next()
        assert (mail.sender, mail.to) == ("ottla@example.org", ["a@b.c", "d@e.f"])
        assert "Subject: [FIRING] group =?utf-8?q?w=C3=A9b?= lags" in mail.text
        assert mail.text.isascii()
        assert "Auto-Submitted: auto-generated" in mail.text
        smtp.refuse = {"a@b.c": 550}
        with pytest.raises(SendError, match="refused for 1 of 2 addresses"):
            send(receiver, message(), TAKEN_MS)
        smtp.refuse = {"a@b.c": 451, "d@e.f": 451}
        with pytest.raises(SendError, match=r"\[451\]") as caught:
            send(receiver, message(), TAKEN_MS)
        assert not caught.value.final
        with_tls = replace(receiver, encryption=Encryption.STARTTLS)
        with pytest.raises(SendError):
            send(with_tls, message(), TAKEN_MS)


def test_nobody_there_is_an_error() -> None:
    """A port that nothing listens on: said without the address."""
    with HttpReceiver() as http:
        gone = http.url
    with pytest.raises(SendError, match="ConnectionRefusedError") as caught:
        send(Receiver("ops", ReceiverKind.JSON, url=gone), message(), TAKEN_MS)
    assert "hidden" not in str(caught.value)


def test_an_alert_fires_and_resolves_to_a_real_receiver(http: HttpReceiver, tmp_path: Path) -> None:
    """The whole of it, with its threads: from a picture to a request, and to the history."""
    alerts = service(tmp_path, Receiver("ops", ReceiverKind.JSON, url=http.url), look_every_s=0.02)
    alerts.put_rule(LAG)
    alerts.start()
    try:
        fired = http.next()
        assert fired.body["status"] == "firing"
        cluster = alerts.clusters["main"]
        assert isinstance(cluster, FakeCluster)
        cluster.picture = replace(picture(groups=2), groups=picture(groups=1).groups)
        resolved = http.next()
        assert resolved.body["status"] == "resolved"
    finally:
        alerts.stop()
    again = service(tmp_path)
    (past,) = again.store.past()
    assert past.resolved_ms is not None
    assert again.alerts() == {}
    again.stop()


def test_what_was_not_sent_before_a_crash_is_sent_after_it(
    http: HttpReceiver, tmp_path: Path
) -> None:
    """The round is kept before anything is sent; the next start sends it once, and does not tell
    the alert anew."""
    receiver = Receiver("ops", ReceiverKind.JSON, url=http.url)
    crashed = service(tmp_path, receiver)
    crashed.put_rule(LAG)
    crashed.look()
    assert states(crashed) == [(DeliveryState.WAITING, 0)]
    after = service(tmp_path)  # the other was never stopped
    after.look()
    after.start()
    assert http.next().body["status"] == "firing"
    after.stop()
    assert http.requests.empty()
    crashed.stop()
    last = service(tmp_path)
    assert states(last) == [(DeliveryState.SENT, 1)]
    last.stop()


def test_a_receiver_that_fails_is_tried_again_in_order(http: HttpReceiver, tmp_path: Path) -> None:
    """A message waits behind the one before it, with the error and the attempts to be seen; a
    receiver that works is not held up."""
    time_ms = TAKEN_MS
    failing = True

    def sending(receiver: Receiver, message: Message, now_ms: int) -> None:
        if failing and receiver.name == "bad":
            raise SendError("HTTP 503 busy")
        send(receiver, message, now_ms)

    alerts = service(
        tmp_path,
        Receiver("bad", ReceiverKind.JSON, url=http.url),
        Receiver("good", ReceiverKind.JSON, url=http.url),
        send=sending,
    )
    alerts.clock = lambda: time_ms
    alerts.put_rule(replace(LAG, receivers=("bad", "good"), repeat_s=60))

    def send_all() -> None:
        alerts.send_due()
        while alerts._sending:
            assert alerts._more_to_send.wait(PATIENCE_S)
            alerts._more_to_send.clear()

    alerts.look()
    send_all()
    assert http.next().body["status"] == "firing"  # the good one's
    (bad,) = alerts.store.heads()
    assert (bad.receiver, bad.attempts, bad.error) == ("bad", 1, "HTTP 503 busy")
    assert bad.next_ms > time_ms
    send_all()
    assert http.requests.empty()  # not due yet
    failing = False
    time_ms = bad.next_ms
    send_all()
    assert http.next().body["status"] == "firing"
    assert {state for state, _ in states(alerts)} == {DeliveryState.SENT}
    alerts.stop()


def test_a_message_that_is_given_up_is_seen_and_can_be_sent_again(
    http: HttpReceiver, tmp_path: Path
) -> None:
    """After a day it counts as failed, with its error; one click sends it."""
    alerts = service(tmp_path, Receiver("ops", ReceiverKind.JSON, url=http.url))
    alerts.put_rule(LAG)
    alerts.look()
    (delivery,) = alerts.store.heads()
    old = replace(delivery, created_ms=TAKEN_MS - 24 * 3600_000)
    alerts._postpone(old, SendError("HTTP 503"))
    (failed,) = alerts.store.deliveries()
    assert (failed.state, failed.error) == (DeliveryState.FAILED, "HTTP 503")
    alerts.again(failed.id)
    alerts.start()
    assert http.next().body["status"] == "firing"
    alerts.stop()


def test_the_test_button_says_what_became_of_it(http: HttpReceiver, tmp_path: Path) -> None:
    """Sent or refused, at once, and kept among the deliveries; it is sent once."""
    alerts = service(tmp_path, Receiver("ops", ReceiverKind.JSON, url=http.url))
    alerts.start()
    assert alerts.test("ops", LAG).state is DeliveryState.SENT
    assert http.next().body["status"] == "test"
    http.answer = lambda request: (404, {}, b"")
    failed = alerts.test("ops")
    assert (failed.state, failed.error) == (DeliveryState.FAILED, "HTTP 404 Not Found")
    with pytest.raises(RuleError, match="no receiver 'nobody'"):
        alerts.test("nobody")
    alerts.stop()
    assert http.requests.qsize() == 1


def test_secrets_of_receivers_are_kept_for_the_owner_and_not_logged(
    http: HttpReceiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is readable by its owner alone; no log names an address, also when it fails."""
    caplog.set_level(logging.DEBUG)
    http.answer = lambda request: (500, {}, b"")
    alerts = service(tmp_path, Receiver("ops", ReceiverKind.DINGTALK, url=http.url, secret="SEC1"))
    alerts.put_rule(LAG)
    alerts.look()
    (delivery,) = alerts.store.heads()
    alerts._try(delivery)
    assert "not taken yet" in caplog.text
    assert "hidden" not in caplog.text
    assert "SEC1" not in caplog.text
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {0o600}
    alerts.stop()


def test_a_deleted_rule_resolves_and_goes(http: HttpReceiver, tmp_path: Path) -> None:
    """It stays until what it told is resolved; a rule of the file is not changed here."""
    of_file = Rule("of the file", "broker.down")
    alerts = service(tmp_path, Receiver("ops", ReceiverKind.JSON, url=http.url), rules=[of_file])
    alerts.put_rule(LAG)
    alerts.look()
    alerts.delete_rule("lag")
    assert [rule.name for rule in alerts.rules()] == ["of the file"]
    alerts.look()
    assert alerts.alerts() == {}
    assert [each.message.status for each in alerts.store.deliveries()] == ["resolved", "firing"]
    assert alerts.store.rules() == []
    with pytest.raises(RuleError, match="stands in the console's file"):
        alerts.put_rule(of_file)
    alerts.stop()


def test_a_trial_says_that_nothing_is_wrong() -> None:
    """Whoever gets a test message is not alarmed."""
    found = trial_message(LAG, "ops", TAKEN_MS)
    assert found.status == "test"
    assert "nothing is wrong" in found.lines[0].text
