"""A message in the form that each kind of receiver takes: body, headers, and the signed address.

Slack: https://api.slack.com/messaging/webhooks; DingTalk: custom robot, signed by the time and
HMAC-SHA256 in the address; WeCom: group robot, Markdown of at most 4,096 bytes; Feishu: custom bot,
signed in the body. Each answers 200 with an error code in the body where it refuses: `complaint`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from .rounds import Message
from .rules import Receiver, ReceiverKind

FORM = 1  # of the generic JSON; raised when a field changes its meaning
SLACK_CHARACTERS_MAX = 3_000
DINGTALK_BYTES_MAX = 18_000
WECOM_BYTES_MAX = 4_096
FEISHU_BYTES_MAX = 18_000
COLOURS = {"firing": "#c62828", "resolved": "#2e7d32", "test": "#1565c0"}
MARKS = {"fired": "🔴", "repeated": "🔴", "resolved": "🟢", "test": "🔵"}


class Payload(NamedTuple):
    url: str
    body: bytes


def payload_of(receiver: Receiver, message: Message, now_ms: int) -> Payload:
    url, body = _MAKERS[receiver.kind](receiver, message, now_ms)
    return Payload(url, json.dumps(body, ensure_ascii=False).encode())


def complaint(kind: ReceiverKind, body: bytes) -> str | None:
    """What a receiver that answered 200 says went wrong; None if nothing."""
    codes = {
        ReceiverKind.DINGTALK: ("errcode", "errmsg"),
        ReceiverKind.WECOM: ("errcode", "errmsg"),
        ReceiverKind.FEISHU: ("code", "msg"),
    }.get(kind)
    if codes is None:
        return None
    try:
        answer = json.loads(body)
        code = answer.get(codes[0], answer.get("StatusCode", 0))
        return None if code == 0 else f"{codes[0]} {code}: {answer.get(codes[1], '')}"
    except (ValueError, AttributeError):
        return "the answer is no JSON object"


def lines_of(message: Message, mark: Callable[[str], str] = lambda text: text) -> list[str]:
    """The message as lines of text, the title not among them."""
    lines = [f"{MARKS[each.event]} {mark(each.text)}" for each in message.lines]
    if message.more:
        lines.append(f"… and {message.more} more")
    if message.note:
        lines.append(mark(message.note))
    return lines


def plain_text(message: Message) -> str:
    """For e-mail."""
    when = datetime.fromtimestamp(message.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    about = f"{message.severity}, cluster {message.cluster}, rule {message.rule}, {when}"
    return "\n".join([message.title, about, "", *lines_of(message), ""])


def _slack(receiver: Receiver, message: Message, now_ms: int) -> tuple[str, Any]:
    def escaped(text: str) -> str:  # <!channel> and links are made of these three
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    text = "\n".join(lines_of(message, escaped))[:SLACK_CHARACTERS_MAX]
    title = escaped(message.title)
    attachment = {"color": COLOURS[message.status], "text": text, "fallback": title}
    return receiver.url, {"text": f"*{title}*", "attachments": [attachment]}


def _dingtalk(receiver: Receiver, message: Message, now_ms: int) -> tuple[str, Any]:
    url = receiver.url
    if receiver.secret:
        signed = f"{now_ms}\n{receiver.secret}".encode()
        digest = hmac.new(receiver.secret.encode(), signed, hashlib.sha256).digest()
        sign = quote(base64.b64encode(digest), safe="")
        url += f"{'&' if '?' in url else '?'}timestamp={now_ms}&sign={sign}"
    text = _cut(_markdown(message), DINGTALK_BYTES_MAX)
    return url, {"msgtype": "markdown", "markdown": {"title": message.title, "text": text}}


def _wecom(receiver: Receiver, message: Message, now_ms: int) -> tuple[str, Any]:
    content = _cut(_markdown(message), WECOM_BYTES_MAX)
    return receiver.url, {"msgtype": "markdown", "markdown": {"content": content}}


def _feishu(receiver: Receiver, message: Message, now_ms: int) -> tuple[str, Any]:
    text = _cut("\n".join([message.title, *lines_of(message)]), FEISHU_BYTES_MAX)
    # Its text knows <at user_id="all">: an angle bracket of a name must not begin one.
    text = text.replace("<", "＜")
    body: dict[str, Any] = {"msg_type": "text", "content": {"text": text}}
    if receiver.secret:
        seconds = now_ms // 1000
        key = f"{seconds}\n{receiver.secret}".encode()
        digest = hmac.new(key, b"", hashlib.sha256).digest()
        body |= {"timestamp": str(seconds), "sign": base64.b64encode(digest).decode()}
    return receiver.url, body


def _json(receiver: Receiver, message: Message, now_ms: int) -> tuple[str, Any]:
    found = asdict(message)
    found["alerts"] = found.pop("lines")
    return receiver.url, {"form": FORM, "text": plain_text(message), **found}


def _markdown(message: Message) -> str:
    def escaped(text: str) -> str:
        for each in "\\`*_[]<>#@":
            text = text.replace(each, f"\\{each}")
        return text

    lines = [f"- {line}" for line in lines_of(message, escaped)]
    return "\n".join([f"### {escaped(message.title)}", *lines])


def _cut(text: str, bytes_max: int) -> str:
    """The text, or as much as fits and an ellipsis."""
    data = text.encode()
    if len(data) <= bytes_max:
        return text
    return data[: bytes_max - 3].decode(errors="ignore") + "…"


_MAKERS: dict[ReceiverKind, Callable[[Receiver, Message, int], tuple[str, Any]]] = {
    ReceiverKind.SLACK: _slack,
    ReceiverKind.DINGTALK: _dingtalk,
    ReceiverKind.WECOM: _wecom,
    ReceiverKind.FEISHU: _feishu,
    ReceiverKind.JSON: _json,
}
