"""A regular expression that cannot hold up the agent.

Python's `re` is quick and cannot be interrupted; Flume's files may have patterns such as `(a+)+$`,
for which some lines take it years. So it looks at texts for which it takes few steps, as `cost`
proves; others go to the `regex` package, which gives up when its time is over. A text for which it
does counts as one that does not match, with a warning that counts them.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any, AnyStr, Generic

from .cost import subject_max

logger = logging.getLogger(__name__)
TIME_MAX_S = 0.1  # of CPU, for one text
TIME_MIN_S = 0.001  # while one text after the other takes too long
WITHOUT_REGEX_MIN = 16 * 1024  # what `re` must have steps for, where that package is not there
SAY_AGAIN_S = 60.0
SHOWN_CHARACTERS = 100


class Bounded(Generic[AnyStr]):
    def __init__(self, pattern: AnyStr, owner: str, flags: int = 0, *, whole: bool = False) -> None:
        """The pattern in Python's syntax; `owner` is named when a text takes too long. With `whole`
        `fullmatch` is what will be asked, otherwise the others. Raises ValueError for a pattern
        that needs the `regex` package where that is not installed."""
        self.compiled: re.Pattern[AnyStr] = re.compile(pattern, flags)
        self.overruns = 0
        self._owner = owner
        self._subject_max = subject_max(pattern, int(flags), whole=whole)
        self._timed: Any = None
        self._time_s = TIME_MAX_S
        self._said_s = -SAY_AGAIN_S
        if self._subject_max < WITHOUT_REGEX_MIN:
            self._timed = self._made_timed()

    def search(self, text: AnyStr) -> re.Match[AnyStr] | None:
        if len(text) <= self._subject_max:
            return self.compiled.search(text)
        found: re.Match[AnyStr] | None = self._in_time(
            text, lambda timed, limit: timed.search(text, timeout=limit), None
        )
        return found

    def match(self, text: AnyStr) -> re.Match[AnyStr] | None:
        """At the beginning of the text."""
        if len(text) <= self._subject_max:
            return self.compiled.match(text)
        found: re.Match[AnyStr] | None = self._in_time(
            text, lambda timed, limit: timed.match(text, timeout=limit), None
        )
        return found

    def fullmatch(self, text: AnyStr) -> re.Match[AnyStr] | None:
        if len(text) <= self._subject_max:
            return self.compiled.fullmatch(text)
        found: re.Match[AnyStr] | None = self._in_time(
            text, lambda timed, limit: timed.fullmatch(text, timeout=limit), None
        )
        return found

    def sub(self, replaced: Callable[[re.Match[AnyStr]], AnyStr], text: AnyStr) -> AnyStr:
        if len(text) <= self._subject_max:
            return self.compiled.sub(replaced, text)
        found: AnyStr = self._in_time(
            text, lambda timed, limit: timed.sub(replaced, text, timeout=limit), text
        )
        return found

    def _in_time(self, text: AnyStr, act: Callable[[Any, float], Any], otherwise: Any) -> Any:
        try:
            self._timed = self._timed or self._made_timed()
            found = act(self._timed, self._time_s)
        except (TimeoutError, ValueError):
            self._overrun(text)
            return otherwise
        self._time_s = min(TIME_MAX_S, 2 * self._time_s)
        return found

    def _overrun(self, text: AnyStr) -> None:
        """Many such texts in a row get less and less time: they must not slow the others."""
        self.overruns += 1
        self._time_s = max(TIME_MIN_S, self._time_s / 2)
        now_s = time.monotonic()
        if now_s - self._said_s < SAY_AGAIN_S:
            return
        self._said_s = now_s
        shown = text[:SHOWN_CHARACTERS]
        logger.warning(
            "%s takes too long for %d bytes beginning %r, which count as not matching (%d so far). "
            "Repetitions within repetitions, such as (a+)+, do that: write the pattern without",
            self._owner,
            len(text),
            shown,
            self.overruns,
        )

    def _made_timed(self) -> Any:
        pattern = self.compiled.pattern
        try:
            import regex
        except ModuleNotFoundError:
            raise ValueError(
                f"{self._owner} may take for ever for some texts, which only the package regex "
                "can limit: pip install 'ottla[agent]', or write it without repetitions within "
                "repetitions"
            ) from None
        try:
            return regex.compile(pattern, regex.ASCII if self.compiled.flags & re.ASCII else 0)
        except regex.error as error:
            raise ValueError(f"{self._owner} cannot be limited in time: {error}") from None
