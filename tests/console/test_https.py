"""A console that is reached by https, as a process."""

from __future__ import annotations

import datetime
import re
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

from ottla.tls.authority import Authority
from tests.cli.process import ottla


def test_pages_come_by_https(tmp_path: Path) -> None:
    """With --certificate the console answers over TLS, and its cookies are for https alone."""
    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.create("a", now)
    (tmp_path / "ca.pem").write_text(authority.pem.certificate)
    certificate = tmp_path / "console.pem"
    certificate.write_text(authority.issue("console", ["localhost"], now, 5).store)
    command = [
        sys.executable, "-m", "ottla", "console", "--bootstrap-server", "127.0.0.1:1",
        "--port", "0", "--data-dir", str(tmp_path / "data"), "--certificate", str(certificate),
        "--until-input-ends",
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as console:
        assert console.stdout is not None
        ready = console.stdout.readline()
        found = re.search(r"ready on https://127\.0\.0\.1:(\d+)/", ready)
        assert found is not None, ready
        context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        url = f"https://localhost:{found[1]}/login"
        with urllib.request.urlopen(url, context=context, timeout=30) as answer:
            assert "Secure" in answer.headers["Set-Cookie"]
            assert "Strict-Transport-Security" in answer.headers
        console.communicate(timeout=60)


def test_a_certificate_that_cannot_be_used(tmp_path: Path) -> None:
    """One sentence, and what to try."""
    file = tmp_path / "no.pem"
    file.write_text("nothing")
    for path in (file, tmp_path / "missing.pem"):
        ended = ottla("console", "--data-dir", tmp_path / "data", "--certificate", path)
        assert ended.code == 1, ended
        assert ended.said(f"{path} cannot be used", "in PEM"), ended
