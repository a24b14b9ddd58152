"""Private keys on their way to OpenSSL."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .certificates import authority

# In a process of its own, for such a hook stays: prints which files Python opens for writing.
WATCHED = """
import json, os, sys
from ottla.tls.contexts import server_context
from ottla.tls.options import from_properties

def watch(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or set(mode or "") & set("wax+"):
            print(path)

sys.addaudithook(watch)
server_context(from_properties(json.loads(sys.argv[1])))
print("loaded")
if len(sys.argv) > 2:
    open(sys.argv[2], "w").close()
"""


def written(properties: dict[str, str], *more: str) -> list[str]:
    command = [sys.executable, "-B", "-c", WATCHED, json.dumps(properties), *more]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize("kind", ["PEM", "inline", "PKCS12"])
def test_keys_reach_openssl_without_a_file(kind: str, tmp_path: Path) -> None:
    """Whatever store they come from, nothing is written; what would be, the watch sees."""
    identity = authority().issue("broker")
    properties = {"ssl.keystore.type": "PEM" if kind == "inline" else kind}
    if kind == "PEM":
        properties["ssl.keystore.location"] = str(identity.write_pem(tmp_path / "server.pem"))
    elif kind == "PKCS12":
        store = identity.write_pkcs12(tmp_path / "server.p12", "secret")
        properties |= {"ssl.keystore.location": str(store), "ssl.keystore.password": "secret"}
    else:
        properties |= {
            "ssl.keystore.key": identity.key_pem(),
            "ssl.keystore.certificate.chain": identity.certificate_pem,
        }
    there = sorted(tmp_path.iterdir())
    assert written(properties) == ["loaded"]
    assert sorted(tmp_path.iterdir()) == there
    seen = str(tmp_path / "seen")
    assert written(properties, seen) == ["loaded", seen]
