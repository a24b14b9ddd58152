"""`ssl.principal.mapping.rules`: how the name in a certificate becomes a user (KIP-371).

Rules are tried in their order. `RULE:pattern/replacement/` with `L` or `U` behind it for small or
capital letters; `DEFAULT` takes the name as it is.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Kafka's own patterns: a `/` inside a part is written `\/`.
_PATTERN = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(?:.*?)"
_SPLITTER = re.compile(rf"\s*({_PATTERN})\s*(?:,\s*|$)", re.ASCII)
_PARSER = re.compile(_PATTERN)
_REFERENCE = re.compile(r"\$(\d+)|\\(.)|(.)", re.DOTALL)


class BadRule(ValueError):
    """A rule that cannot be read; Kafka's words."""


class NoRuleApplies(ValueError):
    """The certificate's name matches no rule: such a client has no name, and is not let in."""


class Rule(NamedTuple):
    pattern: re.Pattern[str] | None  # None: DEFAULT
    replacement: str = ""
    letters: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(self._replaced, name)
        return {"L": found.lower(), "U": found.upper()}.get(self.letters, found)

    def _replaced(self, match: re.Match[str]) -> str:
        """Java's replacement: `$1` is a group if there is one of that number."""

        def part(found: re.Match[str]) -> str:
            digits, after_backslash, plain = found.groups()
            if digits is None:
                return after_backslash if after_backslash is not None else plain
            groups = match.re.groups
            if int(digits[0]) > groups:
                return f"${digits}"
            size = 1
            while size < len(digits) and int(digits[: size + 1]) <= groups:
                size += 1
            return (match[int(digits[:size])] or "") + digits[size:]

        return _REFERENCE.sub(part, self.replacement)


class PrincipalMapper:
    """The rules of one listener."""

    def __init__(self, rules: str) -> None:
        """Raises BadRule."""
        self.text = rules
        self._rules = parse_rules(rules)

    def name_of(self, subject: str) -> str:
        """Raises NoRuleApplies."""
        for rule in self._rules:
            found = rule.apply(subject)
            if found is not None:
                return found
        raise NoRuleApplies(f"No rules apply to {subject}, rules [{self.text}]")


def parse_rules(text: str) -> list[Rule]:
    rules = []
    for match in _SPLITTER.finditer(text.strip()):
        one = match[1]
        parts = _PARSER.match(one)
        assert parts is not None  # its last alternative is empty
        if parts.end() != len(one):
            raise BadRule(f"Invalid rule: `{one}`, unmatched substring: `{one[parts.end() :]}`")
        if parts[1]:
            rules.append(Rule(None))
        elif parts[2] is not None:
            try:
                pattern = re.compile(parts[2], re.ASCII)  # as Java does
            except re.error as error:
                raise BadRule(f"Invalid rule: `{one}`: {error}") from None
            rules.append(Rule(pattern, parts[3], parts[4]))
    return rules
