"""Scripts with commands (`kafka-cluster.sh cluster-id …`), and options before and after them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .options import Done, Given, Option, Parser, Usage


class Command(NamedTuple):
    """One command of a script."""

    about: str
    options: Sequence[Option]
    run: Callable[[Given], int | None]


class Commands:
    """A script whose first word says what to do."""

    def __init__(
        self, tool: str, about: str, common: Sequence[Option], commands: Mapping[str, Command]
    ) -> None:
        self.tool = tool
        self.about = about
        self.common = common
        self.commands = commands

    def parser(self, name: str) -> Parser:
        command = self.commands[name]
        return Parser(f"{self.tool} {name}", command.about, [*self.common, *command.options])

    def run(self, arguments: Sequence[str]) -> int:
        name, rest = self._command(arguments)
        return self.commands[name].run(self.parser(name).parse(rest, bare=True)) or 0

    def _command(self, arguments: Sequence[str]) -> tuple[str, list[str]]:
        options = {f"--{option.name}": option for option in self.common}
        rest = list(arguments)
        index = 0
        while index < len(rest) and rest[index].startswith("-"):
            option = options.get(rest[index])
            index += 2 if option is not None and option.argument else 1
            if rest[index - 1] in ("-h", "--help"):
                print(self.help())
                raise Done(0)
            if rest[index - 1] == "--version":
                return next(iter(self.commands)), ["--version"]
        if index >= len(rest):
            if not arguments:
                print(self.help(), file=sys.stderr)
                raise Done(1)
            raise Usage("a command is missing", f"{self.tool} --help")
        name = rest[index]
        if name not in self.commands:
            listed = ", ".join(self.commands)
            raise Usage(f"there is no command {name!r}; there are {listed}", f"{self.tool} --help")
        return name, rest[:index] + rest[index + 1 :]

    def help(self) -> str:
        lines = [f"{self.tool}: {self.about}", "", "Commands:"]
        width = max(map(len, self.commands))
        lines += [f"  {name:<{width}}  {each.about}" for name, each in self.commands.items()]
        lines += ["", f"{self.tool} COMMAND --help says more about a command."]
        return "\n".join(lines)


def pretty(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table as Kafka's newer tools print it: columns filled, a tab after each."""
    texts = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in texts) for index in range(len(header))]
    for row in texts:
        print("".join(f"{text:<{width}}\t" for text, width in zip(row, widths, strict=True)))
