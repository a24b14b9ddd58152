"""A form that was sent: fields in `application/x-www-form-urlencoded`, bounded."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

FORM_BYTES_MAX = 1024 * 1024
FORM_FIELDS_MAX = 10_000


class Form(dict[str, list[str]]):
    """The fields by name, each with all its values."""

    def one(self, name: str, default: str = "") -> str:
        found = self.get(name)
        return found[0].strip() if found else default

    def number(self, name: str, default: int | None = None) -> int | None:
        """A whole number; a sentence for the user if it is none."""
        text = self.one(name)
        if not text:
            return default
        try:
            return int(text.replace(",", "").replace("_", ""))
        except ValueError:
            raise FormError(f"{name.replace('_', ' ')}: a whole number (got {text!r})") from None


class FormError(ValueError):
    """What is wrong with a form, in a sentence for the one who sent it."""


def moment_ms(text: str) -> int:
    """A time of a form: milliseconds, or `2026-01-31T12:00[:30][Z]`; UTC without a zone."""
    if text.isdecimal() and len(text) < 16:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise FormError(f"time: such as 2026-01-31T12:00 or milliseconds (got {text!r})") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


async def form_of(request: Request) -> Form:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise HTTPException(413, f"A form may have {FORM_BYTES_MAX} bytes.")
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict"
        )
    except ValueError as error:
        raise HTTPException(400, "The form cannot be read.") from error
    form = Form()
    for name, value in pairs:
        form.setdefault(name, []).append(value)
    return form
