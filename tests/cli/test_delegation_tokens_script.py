"""kafka-delegation-tokens.sh against Apache Kafka's own tool, on one broker; and Java's clients,
which log in to it by what the tool has made."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.apache_tools import ApacheTools
from tests.cli.compare import kafka_script
from tests.security.harness import PLAIN, SCRAM, SaslServer

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("tools")]
TOOL = "kafka-delegation-tokens.sh"
DAY_MS = 24 * 3_600_000
ID = re.compile(r"\b[A-Za-z0-9_-]{22}\b")
PROOF = re.compile(r"[A-Za-z0-9+/]{86}==")
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")

# In this order; `{x}` is `xa` for Apache's tool and `xo` for ours, `{hmac}` that of its last token.
LINES = f"""
--describe
--create --max-life-time-period -1
--create --max-life-time-period {DAY_MS} --renewer-principal User:{{x}} --renewer-principal User:b
--create --max-life-time-period -1 --owner-principal User:{{x}}
--describe --owner-principal User:{{x}}
--describe --owner-principal User:nobody
--renew --renew-time-period -1 --hmac {{hmac}}
--create --max-life-time-period -1 --renewer-principal User:{{x}}-r
--renew --renew-time-period 3600000 --hmac {{hmac}}
--renew --renew-time-period -1 --hmac eA==
--expire --expiry-time-period 3600000 --hmac {{hmac}}
--expire --expiry-time-period -1 --hmac {{hmac}}
--expire --expiry-time-period -1 --hmac {{hmac}}
--create --max-life-time-period -1 --renewer-principal Group:{{x}}
--create --max-life-time-period -1 --renewer-principal nobody
--create --max-life-time-period soon
--create --max-life-time-period
--create
--renew --hmac {{hmac}}
--renew --renew-time-period -1
--expire --hmac {{hmac}}
--create --describe --max-life-time-period -1
--create --max-life-time-period -1 --hmac {{hmac}}
--renew --renew-time-period -1 --hmac {{hmac}} --owner-principal User:{{x}}
--describe --hmac {{hmac}}
--hmac {{hmac}}
""".strip().splitlines()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslServer]:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "delegation.token.secret.key": "a key",
    }
    folder = tmp_path_factory.mktemp("tokens")
    with SaslServer(folder, {"admin": "admin-secret"}, settings=settings) as running:
        yield running


def options(folder: Path, name: str, mechanism: str, line: str) -> str:
    """A file of options with this login."""
    path = folder / f"{name}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\nsasl.jaas.config={line};\nclient.id=tokens\n"
    )
    return str(path)


def as_admin(folder: Path) -> str:
    line = f'{PLAIN} required username="admin" password="admin-secret"'
    return options(folder, "admin", "PLAIN", line)


def by_token(folder: Path, name: str, proof: str, mechanism: str) -> str:
    line = f'{SCRAM} required username="{name}" password="{proof}" tokenauth="true"'
    return options(folder, "token", mechanism, line)


def normal(text: str) -> list[str]:
    """Without what each token has of its own."""
    for pattern, word in ((PROOF, "<hmac>"), (ID, "<id>"), (DATE, "<date>")):
        text = pattern.sub(word, text)
    return text.splitlines()


def test_the_same_is_said_and_done(
    apache_tools: ApacheTools, server: SaslServer, tmp_path: Path
) -> None:
    """Exit code and output of each line; what refuses a command line is in our own words."""
    different = []
    config = as_admin(tmp_path)
    proofs = {"xa": "", "xo": ""}
    for line in LINES:
        answers = []
        for x in proofs:
            words = shlex.split(line.replace("{x}", x).replace("{hmac}", proofs[x]))
            asked = ["--bootstrap-server", server.bootstrap, "--command-config", config, *words]
            answer = apache_tools.run(TOOL, *asked) if x == "xa" else kafka_script(TOOL, *asked)
            if "--create" in words and (made := PROOF.search(answer.out)):
                proofs[x] = made[0]
            answers.append(answer)
        expected, found = answers
        if expected.code:
            same = found.code == expected.code
        else:
            said = normal(expected.out.replace("xa", "xo"))
            same = (found.code, normal(found.out)) == (0, said)
        if not same:
            different.append(f"{line}\n  Apache: {expected}\n  ours:   {found}")
    assert not different, "\n".join(different)


def test_all_that_one_may_see_is_shown(server: SaslServer, tmp_path: Path) -> None:
    """Without --owner-principal, as Kafka's help says; Kafka's tool asks for nobody's then."""
    asked = ("--bootstrap-server", server.bootstrap, "--command-config", as_admin(tmp_path))
    made = kafka_script(TOOL, *asked, "--create", "--max-life-time-period", "-1")
    proof = PROOF.search(made.out)
    assert proof is not None
    assert proof[0] in kafka_script(TOOL, *asked, "--describe").out


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_javas_clients_log_in_by_a_token(
    apache_tools: ApacheTools, server: SaslServer, tmp_path: Path, mechanism: str
) -> None:
    """Made, renewed and ended by Kafka's tool: until it is ended, and not for more tokens."""
    brokers = ("--bootstrap-server", server.bootstrap)
    admin = ("--command-config", as_admin(tmp_path))
    made = apache_tools.run(TOOL, *brokers, *admin, "--create", "--max-life-time-period", "-1")
    name, proof = ID.search(made.out), PROOF.search(made.out)
    assert name is not None
    assert proof is not None
    holder = ("--command-config", by_token(tmp_path, name[0], proof[0], mechanism))
    topic = f"made-by-token-{mechanism.lower()}"
    created = apache_tools.run("kafka-topics.sh", *brokers, *holder, "--create", "--topic", topic)
    assert created.code == 0, created
    listed = kafka_script("kafka-topics.sh", *brokers, *holder, "--list")
    assert topic in listed.out.split()
    refused = apache_tools.run(TOOL, *brokers, *holder, "--describe")
    assert refused.code == 1
    assert "Delegation Token requests are not allowed" in refused.errors + refused.out
    ended = ("--expire", "--expiry-time-period", "-1", "--hmac", proof[0])
    assert apache_tools.run(TOOL, *brokers, *admin, *ended).code == 0
    late = apache_tools.run("kafka-topics.sh", *brokers, *holder, "--list")
    assert late.code == 1
    sentence = f"invalid credentials with SASL mechanism {mechanism}"
    assert sentence in late.errors + late.out
    assert kafka_script("kafka-topics.sh", *brokers, *holder, "--list").code == 1
