"""The command lines of Kafka's scripts: `--name value`, `--name=value`, flags, repeated options.

A tool declares its options once, as data; a test compares their names with Apache's. What a tool
leaves out stands there too (`skipped`), and is refused with its reason. `--help` and `--version`
are understood everywhere, and so is `--zookeeper`, which every script of old had: it finds the
brokers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ottla import __version__
from ottla.cli.failure import Failure


class Option(NamedTuple):
    """One option of a script."""

    name: str
    argument: str = ""  # empty: a flag; in [brackets]: the argument may be left out
    about: str = ""
    default: Any = None
    kind: Callable[[str], Any] = str
    required: bool = False
    skipped: str = ""  # why it is not there
    short: str = ""


class Usage(Failure):
    """The command line itself is wrong."""

    def __init__(self, fact: str, hint: str) -> None:
        super().__init__(fact, hint, exit_code=1)


class Given:
    """What was given: options by name, and the other words."""

    def __init__(self, parser: Parser, values: dict[str, list[Any]], words: list[str]) -> None:
        self.parser = parser
        self._values = values
        self.words = words

    def has(self, name: str) -> bool:
        return name in self._values

    @property
    def names(self) -> list[str]:
        """The options that were given, in the order in which they first were."""
        return list(self._values)

    def value(self, name: str) -> Any:
        """The last one given, or the default."""
        if name in self._values:
            found = self._values[name]
            return found[-1] if found else self.parser.by_name[name].default
        return self.parser.by_name[name].default

    def values(self, name: str) -> list[Any]:
        """All that were given, in order."""
        return self._values.get(name, [])

    def one_of(self, *names: str) -> str:
        """Which of these actions was asked for: exactly one."""
        found = [name for name in names if self.has(name)]
        if len(found) != 1:
            listed = ", ".join(f"--{name}" for name in names)
            self.parser.refuse(f"exactly one of these actions is needed: {listed}")
        return found[0]

    def require(self, *names: str) -> None:
        for name in names:
            if not self.has(name):
                self.parser.refuse(f"--{name} is missing")

    def exclude(self, name: str, others: Iterable[str]) -> None:
        """`name` cannot stand together with `others`."""
        for other in others:
            if self.has(name) and self.has(other):
                self.parser.refuse(f"--{name} cannot be used together with --{other}")

    def properties(self, *sources: str) -> dict[str, str]:
        """`key=value` pairs of these options; those of the later options win."""
        found: dict[str, str] = {}
        for source in sources:
            for text in self.values(source):
                found |= self.parser.pair(source, text)
        return found

    def file_properties(self, *sources: str) -> dict[str, str]:
        """The properties in the files that these options name."""
        found: dict[str, str] = {}
        for source in sources:
            for path in self.values(source):
                found |= read_properties(path)
        return found


class Parser:
    """One script's command line."""

    def __init__(
        self, tool: str, about: str, options: Sequence[Option], *, words: str = ""
    ) -> None:
        self.tool = tool
        self.about = about
        self.words = words
        self.options = [*options, *COMMON]
        self.by_name = {option.name: option for option in self.options}
        self.by_short = {option.short: option for option in self.options if option.short}

    def parse(self, arguments: Sequence[str], *, bare: bool = False) -> Given:
        """`bare`: without arguments it is not help that is wanted."""
        values: dict[str, list[Any]] = {}
        words: list[str] = []
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            option, equals, attached = self._option(word)
            if option is None:
                words.append(word)
                continue
            found = values.setdefault(option.name, [])
            if not option.argument:
                if equals:
                    self.refuse(f"--{option.name} takes no value (got {attached!r})")
            elif equals:
                found.append(self._converted(option, attached))
            elif not option.argument.startswith("["):
                if not rest:
                    self.refuse(f"--{option.name} needs a value: {option.argument}")
                found.append(self._converted(option, rest.pop(0)))
            elif rest and not rest[0].startswith("--"):
                found.append(self._converted(option, rest.pop(0)))
        self._common(values, arguments, bare)
        for option in self.options:
            if option.skipped and option.name in values:
                raise Failure(f"--{option.name}: {option.skipped}", f"{self.tool} without it")
        for option in self.options:
            if option.required and option.name not in values:
                self.refuse(f"--{option.name} is missing")
        if words and not self.words:
            self.refuse(f"{words[0]!r} is not an option")
        return Given(self, values, words)

    def _option(self, word: str) -> tuple[Option | None, str, str]:
        if word.startswith("--") and len(word) > 2:
            name, equals, attached = word[2:].partition("=")
            if name not in self.by_name:
                self.refuse(f"there is no option --{name}{self._close_to(name)}")
            return self.by_name[name], equals, attached
        if word.startswith("-") and word[1:] in self.by_short:
            return self.by_short[word[1:]], "", ""
        return None, "", ""

    def _close_to(self, name: str) -> str:
        import difflib

        close = difflib.get_close_matches(name, self.by_name, 1, 0.6)
        return f"; did you mean --{close[0]}?" if close else ""

    def _converted(self, option: Option, text: str) -> Any:
        try:
            return option.kind(text)
        except ValueError:
            what = "a whole number" if option.kind is int else option.argument
            self.refuse(f"--{option.name} must be {what} (got {text!r})")

    def pair(self, name: str, text: str) -> dict[str, str]:
        key, equals, value = text.partition("=")
        if not equals or not key:
            self.refuse(f"--{name} must be key=value (got {text!r})")
        return {key: value}

    def refuse(self, fact: str) -> Any:
        raise Usage(fact, f"{self.tool} --help")

    def _common(self, values: dict[str, list[Any]], arguments: Sequence[str], bare: bool) -> None:
        if "help" in values or not (arguments or bare):
            print(self.help(), file=sys.stdout if "help" in values else sys.stderr)
            raise Done(0 if "help" in values else 1)
        if "version" in values:
            print(f"{KAFKA_VERSION} (ottla {__version__})")
            raise Done(0)
        if "zookeeper" in values:
            self._find_brokers(values, arguments)

    def _find_brokers(self, values: dict[str, list[Any]], arguments: Sequence[str]) -> None:
        """Kafka's tools lost the option in 3.0; here it says where the brokers are registered."""
        again = f"{self.tool} --bootstrap-server localhost:9092 {without_zookeeper(arguments)}"
        if "bootstrap-server" not in self.by_name:
            raise Failure("--zookeeper: this tool asks no broker", f"{self.tool} --help")
        if "bootstrap-server" not in values:
            from ottla.cli.zookeeper_brokers import bootstrap_servers

            values["bootstrap-server"] = [bootstrap_servers(values["zookeeper"][-1], again)]

    def help(self) -> str:
        """The usage text."""
        lines = [f"{self.tool}: {self.about}", ""]
        if self.words:
            lines += [f"Usage: {self.tool} [OPTIONS] {self.words}", ""]
        shown = [option for option in self.options if option.name != "zookeeper"]
        left = [
            f"  --{option.name}" + (f" {option.argument}" if option.argument else "")
            for option in sorted(shown, key=lambda option: option.name)
        ]
        width = min(max(map(len, left)), 44)
        for text, option in zip(left, sorted(shown, key=lambda o: o.name), strict=True):
            about = f"not there: {option.skipped}" if option.skipped else option.about
            if option.default is not None:
                about += f" (default: {option.default})"
            lines.append(f"{text:<{width}}  {about}".rstrip())
        return "\n".join(lines)


class Done(Exception):
    """The tool has said all it had to say."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


KAFKA_VERSION = "4.3.1"  # the version whose tools these scripts follow
COMMON = (
    Option("help", about="show this text"),
    Option("version", about="show the version"),
    Option("zookeeper", "HOSTS"),
)
BOOTSTRAP = Option("bootstrap-server", "HOST:PORT", "brokers to ask first", required=True)
COMMAND_CONFIG = Option("command-config", "FILE", "options of the client, in a properties file")


def without_zookeeper(arguments: Sequence[str]) -> str:
    kept: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--zookeeper":
            rest = rest[1:]
        elif not word.startswith("--zookeeper="):
            kept.append(word)
    return " ".join(kept)


def read_properties(path: str) -> dict[str, str]:
    """A file of `name=value` lines."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Failure(
            f"cannot read {path}: {(reason or '').lower()}", "a file that is there"
        ) from None
    return parse_properties(text)


ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")


def unescaped(found: re.Match[str]) -> str:
    """A character behind a backslash, as Java's properties have it: keys in PEM hold line ends."""
    if len(found[1]) > 1:
        return chr(int(found[1][1:], 16))
    return {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(found[1], found[1])


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties: comments with # or !, `=`, `:` or a blank between name and value."""
    found: dict[str, str] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            match = re.match(r"((?:[^\\=:\s]|\\.)+)\s*[=:\s]?\s*(.*)", line)
            assert match is not None
            name, value = (ESCAPED.sub(unescaped, part) for part in match.groups())
            found[name] = value
    return found
