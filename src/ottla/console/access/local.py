"""Users of the console itself: who they are, their sessions and tokens.

`local(data_dir)` opens them; at the first start it makes the user `admin` with a one-time password,
which the command prints (`first_password`) and nothing logs. Everything that a request asks is in
memory; each change goes to `store.py` before it holds.

Session ids and tokens are random, 256 bits; the CSRF token of a session is an HMAC under its id, so
that it need not be kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from . import passwords
from .guard import AuditEntry, Visit, address_of
from .login_limit import LoginLimit
from .names import Refused, check_grants, check_user_name
from .permissions import Grant, Principal, Role
from .store import FILE_NAME, AccessFileError, Session, Store, Token, User

if TYPE_CHECKING:
    from .issuer import Issuer

FIRST_USER = "admin"
LOCAL = "local"  # the source of users whose passwords are kept here
NO_ROLE = "No role of this console is given to you: ask who runs it."
SESSION_IDLE_MS = 8 * 3600_000
SESSION_MAX_MS = 7 * 24 * 3600_000
SESSIONS_PER_USER_MAX = 20  # the oldest is ended
SEEN_EVERY_MS = 60_000  # how exactly the last use is kept
USERS_MAX = 1000
TOKENS_PER_USER_MAX = 50
TOKEN_PREFIX = "ottla_"
TOKEN_BYTES = 32
API_PREFIX = "/api/"

logger = logging.getLogger(__name__)


def now() -> int:
    return int(time.time() * 1000)


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class LocalAccess:
    def __init__(
        self,
        store: Store,
        *,
        read_only: bool = False,
        tls: bool = False,
        clock: Callable[[], int] = now,
    ) -> None:
        self.store = store
        self.read_only = read_only
        self.tls = tls
        self.clock = clock
        self.limit = LoginLimit()
        self.first_password: str | None = None
        self.issuer: Issuer | None = None  # whose users may log in too
        self._lock = threading.RLock()
        self._users = {user.name: user for user in store.users()}
        self._sessions = {each.id_hash: each for each in store.sessions()}
        self._tokens = {each.token_hash: each for each in store.tokens()}
        # Two consoles on one host share its cookies (RFC 6265, 8.5): each has names of its own.
        installation = store.fact("installation", secrets.token_hex(4))
        self._anonymous_key = store.fact("anonymous-key", secrets.token_urlsafe(32)).encode()
        self.oidc_key = store.fact("oidc-key", secrets.token_urlsafe(32)).encode()
        prefix = "__Host-" if tls else ""
        self.session_cookie = f"{prefix}ottla_session_{installation}"
        self.anonymous_cookie = f"{prefix}ottla_form_{installation}"
        self._first_start()

    def _first_start(self) -> None:
        """Without a user that ever logged in, `admin` gets a one-time password, at each start."""
        first = self._users.get(FIRST_USER)
        own = [each for each in self._users.values() if each.source == LOCAL]
        if own and not (len(own) == 1 and first and first.must_change):
            return
        self.first_password = passwords.one_time()
        self._put(
            User(
                name=FIRST_USER,
                password=passwords.hash_password(self.first_password),
                must_change=True,
                disabled=False,
                grants=(Grant(Role.ADMIN),),
                created_ms=self.clock(),
            )
        )

    def close(self) -> None:
        self.store.close()

    # What every request asks

    def visit_of(self, request: HTTPConnection) -> Visit | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and request.url.path.startswith(API_PREFIX):
            return self._visit_by_token(token.strip())
        session_id = request.cookies.get(self.session_cookie, "")
        session = self._sessions.get(hashed(session_id)) if session_id else None
        if session is None:
            return None
        user = self._users.get(session.user)
        time_ms = self.clock()
        if user is None or user.disabled or self._expired(session, time_ms):
            return None
        # A stream asks again with each chunk: only its begin counts as use.
        if not getattr(request.state, "session_seen", False):
            request.state.session_seen = True
            self._seen(session, time_ms)
        return Visit(
            Principal(user.name, user.grants, self.read_only),
            csrf_of(session_id),
            session.id_hash,
            must_change_password=user.must_change,
        )

    def _visit_by_token(self, secret: str) -> Visit | None:
        token = self._tokens.get(hashed(secret))
        user = self._users.get(token.user) if token is not None else None
        if token is None or user is None or user.disabled:
            return None
        time_ms = self.clock()
        if token.expires_ms is not None and token.expires_ms <= time_ms:
            return None
        if token.used_ms is None or time_ms - token.used_ms >= SEEN_EVERY_MS:
            with self._lock:
                if token.token_hash not in self._tokens:
                    return None
                used = replace(token, used_ms=time_ms)
                self._tokens[token.token_hash] = used
                self.store.put_token(used)
        principal = Principal(user.name, user.grants, self.read_only, token.within)
        return Visit(principal, "", by_token=True)

    def anonymous_csrf(self, request: HTTPConnection) -> tuple[str, str | None]:
        kept = request.cookies.get(self.anonymous_cookie, "")
        if len(kept) == 43:
            return self._anonymous_token(kept), None
        made = secrets.token_urlsafe(32)
        return self._anonymous_token(made), self._cookie(self.anonymous_cookie, made)

    def _anonymous_token(self, cookie: str) -> str:
        key = self._anonymous_key
        return hmac.new(key, cookie.encode(errors="replace"), hashlib.sha256).hexdigest()

    def record(self, entry: AuditEntry) -> None:
        logger.info(
            "%s from %s: %s %s %s: %s",
            entry.user or "-",
            entry.address,
            entry.action,
            entry.cluster or "console",
            ascii(entry.target),
            entry.result,
        )
        try:
            self.store.record(entry)
        except sqlite3.Error as error:
            # What it tells has happened: to say that it failed would be wrong. The line above has
            # all of it but the detail.
            logger.error("the audit log cannot be written (%s): %s", error, ascii(entry.detail))

    # Sessions

    def log_in(self, name: str, password: str, request: HTTPConnection) -> str:
        """The cookie of a new session. Takes long: not on the event loop."""
        address = address_of(request)
        wait_ms = self.limit.begin(name, address, self.clock())
        if wait_ms:
            minutes = -(-wait_ms // 60_000)
            raise Refused(f"Too many attempts. Try again in {minutes} min.")
        user = self._users.get(name)
        usable = user is not None and not user.disabled and user.password != ""
        right = passwords.verify(
            password, user.password if user is not None and usable else passwords.NOBODY
        )
        if user is None or not usable or not right:
            raise Refused("The name or the password is wrong.")
        self.limit.succeeded(name, address)
        return self.open_session(user.name, address)

    def log_in_person(
        self, name: str, source: str, grants: tuple[Grant, ...], request: HTTPConnection
    ) -> str:
        """The cookie of a session of one whom an issuer knows; with the roles of this moment."""
        with self._lock:
            user = self._users.get(name)
            if user is None and not grants:
                raise Refused(NO_ROLE)
            if user is None:
                self._check_new(name)
                user = User(name, "", False, False, grants, self.clock(), source)
            if user.source != source:
                raise Refused(f"There is another user {name!r} here, who is not that one.")
            if user.grants != grants or name not in self._users:
                self._put(replace(user, grants=grants))
            if not grants:
                self._end(self.sessions_of(name))
                raise Refused(NO_ROLE)
            if user.disabled:
                raise Refused("The user is disabled here.")
            return self.open_session(name, address_of(request))

    def open_session(self, user: str, address: str) -> str:
        session_id = secrets.token_urlsafe(32)
        time_ms = self.clock()
        with self._lock:
            if user not in self._users:
                raise Refused("The name or the password is wrong.")
            session = Session(hashed(session_id), user, time_ms, time_ms, address)
            self.store.put_session(session)
            self._sessions[session.id_hash] = session
            theirs = sorted(self.sessions_of(user), key=lambda each: each.seen_ms)
            self._end(theirs[:-SESSIONS_PER_USER_MAX])
            self._end([each for each in self._sessions.values() if self._expired(each, time_ms)])
        return self._cookie(self.session_cookie, session_id)

    def log_out(self, visit: Visit) -> str:
        """End the session; the cookie that removes the browser's."""
        with self._lock:
            session = self._sessions.get(visit.session)
            self._end([session] if session is not None else [])
        return self._cookie(self.session_cookie, "", "; Max-Age=0")

    def sessions_of(self, user: str) -> list[Session]:
        return [each for each in list(self._sessions.values()) if each.user == user]

    def _seen(self, session: Session, time_ms: int) -> None:
        if time_ms - session.seen_ms < SEEN_EVERY_MS:
            return
        with self._lock:
            if session.id_hash in self._sessions:
                seen = replace(session, seen_ms=time_ms)
                self._sessions[session.id_hash] = seen
                # A full disk keeps nobody from looking; after a restart it is an older time.
                with contextlib.suppress(sqlite3.OperationalError):
                    self.store.put_session(seen)

    def _end(self, sessions: Sequence[Session]) -> None:
        for each in sessions:
            self._sessions.pop(each.id_hash, None)
        self.store.delete_sessions([each.id_hash for each in sessions])

    @staticmethod
    def _expired(session: Session, time_ms: int) -> bool:
        idle = time_ms - session.seen_ms > SESSION_IDLE_MS
        return idle or time_ms - session.created_ms > SESSION_MAX_MS

    def _cookie(self, name: str, value: str, more: str = "") -> str:
        secure = "; Secure" if self.tls else ""
        return f"{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}"

    # Users

    def users(self) -> list[User]:
        return sorted(self._users.values(), key=lambda each: each.name)

    def user(self, name: str) -> User:
        user = self._users.get(name)
        if user is None:
            raise Refused(f"There is no user {name!r}.")
        return user

    def add_user(self, name: str, grants: Sequence[Grant]) -> str:
        """A user with a one-time password, which is returned."""
        check_user_name(name)
        check_grants(grants)
        password = passwords.one_time()
        hashed_password = passwords.hash_password(password)
        with self._lock:
            self._check_new(name)
            self._put(User(name, hashed_password, True, False, tuple(grants), self.clock()))
        return password

    def _check_new(self, name: str) -> None:
        if name.lower() in {each.lower() for each in self._users}:
            raise Refused(f"There is a user {name!r} already.")
        if len(self._users) >= USERS_MAX:
            raise Refused(f"There are {USERS_MAX} users, the most that the console keeps.")

    def set_grants(self, name: str, grants: Sequence[Grant]) -> None:
        check_grants(grants)
        with self._lock:
            if self.user(name).source != LOCAL:
                raise Refused(f"The roles of {name} come from the issuer, with each login.")
            self._change(replace(self.user(name), grants=tuple(grants)))

    def set_disabled(self, name: str, disabled: bool) -> None:
        with self._lock:
            self._change(replace(self.user(name), disabled=disabled))
            if disabled:
                self._end(self.sessions_of(name))

    def reset_password(self, name: str) -> str:
        """A new one-time password; all sessions of the user end."""
        if self.user(name).source != LOCAL:
            raise Refused(f"The password of {name} is not kept here.")
        password = passwords.one_time()
        hashed_password = passwords.hash_password(password)
        with self._lock:
            self._put(replace(self.user(name), password=hashed_password, must_change=True))
            self._end(self.sessions_of(name))
        return password

    def change_password(self, visit: Visit, current: str, new: str) -> None:
        """The user's own change; all other sessions of the user end."""
        name = visit.principal.name
        user = self.user(name)
        if user.source != LOCAL:
            raise Refused("Your password is not kept here.")
        if self.limit.begin(name, visit.session, self.clock()):
            raise Refused("Too many attempts. Try again later.")
        if not passwords.verify(current, user.password):
            raise Refused("The current password is wrong.")
        self.limit.succeeded(name, visit.session)
        sentence = passwords.complaint(new, name)
        if sentence is None and new == current:
            sentence = "The new password is the old one."
        if sentence is not None:
            raise Refused(sentence)
        hashed_password = passwords.hash_password(new)
        with self._lock:
            self._put(replace(self.user(name), password=hashed_password, must_change=False))
            self._end([each for each in self.sessions_of(name) if each.id_hash != visit.session])

    def delete_user(self, name: str) -> None:
        with self._lock:
            self._keep_an_admin(name, None)
            self.user(name)
            self.store.delete_user(name)
            del self._users[name]
            self._sessions = {k: v for k, v in self._sessions.items() if v.user != name}
            self._tokens = {k: v for k, v in self._tokens.items() if v.user != name}

    def _change(self, user: User) -> None:
        self._keep_an_admin(user.name, user)
        self._put(user)

    def _put(self, user: User) -> None:
        self.store.put_user(user)
        self._users[user.name] = user

    def _keep_an_admin(self, name: str, changed: User | None) -> None:
        # An issuer may be away, or take a role back: only users of the console's own count.
        left = [each for each in self._users.values() if each.name != name]
        if changed is not None:
            left.append(changed)
        if not any(
            each.source == LOCAL
            and not each.disabled
            and Principal(each.name, each.grants).administers()
            for each in left
        ):
            raise Refused("Nobody would be left who is admin of the console.")

    # Tokens

    def tokens(self, user: str | None = None) -> list[Token]:
        found = [each for each in list(self._tokens.values()) if user in (None, each.user)]
        return sorted(found, key=lambda each: -each.created_ms)

    def add_token(self, user: str, name: str, within: Grant, days: int | None) -> tuple[str, Token]:
        """A token of the user; its text is returned once and not kept."""
        check_grants([within])
        if not name or len(name) > 100 or not name.isprintable():
            raise Refused("A token has a name of at most 100 printable characters.")
        secret = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        time_ms = self.clock()
        token = Token(
            token_hash=hashed(secret),
            id=secrets.token_hex(8),
            name=name,
            user=user,
            within=within,
            created_ms=time_ms,
            expires_ms=time_ms + days * 24 * 3600_000 if days is not None else None,
            used_ms=None,
        )
        with self._lock:
            self.user(user)
            if len(self.tokens(user)) >= TOKENS_PER_USER_MAX:
                raise Refused(f"{user} has {TOKENS_PER_USER_MAX} tokens: delete one first.")
            self.store.put_token(token)
            self._tokens[token.token_hash] = token
        return secret, token

    def delete_token(self, ident: str) -> None:
        with self._lock:
            self.store.delete_token(ident)
            self._tokens = {k: v for k, v in self._tokens.items() if v.id != ident}


def csrf_of(session_id: str) -> str:
    key = session_id.encode(errors="replace")
    return hmac.new(key, b"csrf", hashlib.sha256).hexdigest()


def local(data_dir: Path, *, read_only: bool = False, tls: bool = False) -> LocalAccess:
    """The users of the console whose data is in this directory, made at the first start. The
    command prints `first_password` where it is not None. `tls`: the console is reached by https."""
    try:
        return LocalAccess(Store(data_dir), read_only=read_only, tls=tls)
    except sqlite3.Error as error:
        raise AccessFileError(f"{data_dir / FILE_NAME}: {error}") from error
