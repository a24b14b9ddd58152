"""`python -m ottla.wire show fetch 12`: print what is compiled for an API in a version."""

from __future__ import annotations

import argparse
import sys

from .apis import API, Api
from .compiler import read_source, write_source
from .malformed import UnsupportedVersion
from .schema import supported


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.wire", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="list the declared APIs with their versions")
    show = commands.add_parser("show", help="print the compiled readers and writers")
    show.add_argument("api", help="such as fetch, list_offsets or ListOffsets")
    show.add_argument("version", type=int)
    show.add_argument("--part", choices=("request", "response"), help="only this half")
    options = parser.parse_args(arguments)
    if options.command == "list":
        for api in API.values():
            print(f"{api.key:3d}  {api.versions[0]:2d}-{api.versions[1]:<3d} {api.name}")
        return 0
    wanted = options.api.replace("_", "").lower()
    found = [api for api in API.values() if api.name.lower() == wanted]
    if not found:
        print(f"no API is called {options.api}\nTry: python -m ottla.wire list", file=sys.stderr)
        return 1
    return show_api(found[0], options.version, options.part)


def show_api(api: Api, version: int, part: str | None) -> int:
    parts = (part,) if part else ("request", "response")
    try:
        for cls in (getattr(api, name) for name in parts):
            supported(cls, version)
            print(read_source(cls, version).text())
            print(write_source(cls, version).text())
    except UnsupportedVersion as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
