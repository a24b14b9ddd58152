"""Jobs for the background tests, run as a helper process with `python -m`."""

import os
import sys
import time
from typing import Any

from ottla.seams.background import Arguments, serve_one_job


def double(_disk: object, arguments: Arguments) -> Arguments:
    print("what a library prints must not spoil the answer")
    return {"number": arguments["number"] * 2, "niceness": os.nice(0), "pid": os.getpid()}


def fail(_disk: object, arguments: Arguments) -> Arguments:
    raise ValueError(f"cannot take {arguments['number']}")


def die(_disk: object, _arguments: Arguments) -> Arguments:
    os._exit(7)


def sleep(_disk: object, arguments: Arguments) -> Arguments:
    with open(arguments["path"], "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)
    return {}


JOBS: dict[str, Any] = {"double": double, "fail": fail, "die": die, "sleep": sleep}

if __name__ == "__main__":
    sys.exit(serve_one_job(JOBS, None))  # type: ignore[arg-type]
