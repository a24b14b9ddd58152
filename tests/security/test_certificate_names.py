"""Names in certificates and the users they become, compared with Java and with Kafka's rules."""

from __future__ import annotations

import base64
import datetime
from functools import cache
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from ottla.security.ssl_principal import BadRule, NoRuleApplies, PrincipalMapper
from ottla.tls.certificate import parse, parse_pem
from tests import needs
from tests.apache import java

from .certificates import authority

KEY = ec.generate_private_key(ec.SECP256R1())


def named(*parts: list[tuple[x509.ObjectIdentifier, str]], year: int = 2030) -> bytes:
    """A certificate in DER with these relative names, in the order of the encoding."""
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(*each) for each in part])
            for part in parts
        ]
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2020, 1, 2, 3, 4, 5))
        .not_valid_after(datetime.datetime(year, 6, 7, 8, 9, 10))
        .sign(KEY, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )


@cache
def subjects() -> list[bytes]:
    plain = [
        [(NameOID.COUNTRY_NAME, "AT")],
        [(NameOID.STATE_OR_PROVINCE_NAME, "Wien")],
        [(NameOID.LOCALITY_NAME, "Wien")],
        [(NameOID.ORGANIZATION_NAME, "Ottla & Söhne")],
        [(NameOID.ORGANIZATIONAL_UNIT_NAME, "x")],
        [(NameOID.COMMON_NAME, "alice")],
    ]
    common = [
        "alice", "a,b", "a+b=c", ' "quoted" ', "#hash", "a\\b", "<x>;y", "  two  ", "ä€😀", "a/b",
        "a\rb", " ",
    ]  # fmt: skip
    several = [(NameOID.COMMON_NAME, "both"), (NameOID.USER_ID, "u1")]
    others = [
        [(NameOID.EMAIL_ADDRESS, "a@b.c")],
        [(NameOID.SERIAL_NUMBER, "77")],
        [(NameOID.STREET_ADDRESS, "Gasse 1")],
        [(NameOID.DOMAIN_COMPONENT, "example")],
        [(NameOID.USER_ID, "u2")],
        [(x509.ObjectIdentifier("2.999.1234567"), "far")],
    ]
    return [
        named(*plain),
        named(*reversed(plain)),
        *(named([(NameOID.COMMON_NAME, each)]) for each in common),
        named(several, *others),
        named(*([each] for each in [(NameOID.COMMON_NAME, "x"), (NameOID.COMMON_NAME, "y")])),
        _with_kind("latin", _ASN1Type.T61String),
        _with_kind("ia5", _ASN1Type.IA5String),
        _with_kind("printable", _ASN1Type.PrintableString),
    ]


def _with_kind(text: str, kind: _ASN1Type) -> bytes:
    attribute = x509.NameAttribute(NameOID.COMMON_NAME, text, _type=kind)
    name = x509.Name([attribute])
    now = datetime.datetime(2024, 1, 1)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(KEY, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )


RULES = [
    "DEFAULT",
    "",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?)$/$1@$2/L,"
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"
    ),
    "RULE:^CN=([^,]+).*$/$1/U , DEFAULT",
    "RULE:^CN=([^,]+),.*$/$1/",
    "RULE:^CN=(\\w+).*$/user-$1-$2-$0/",
    "RULE:CN=(.)(.)(.).*/$3$2$1$11/L",
    "RULE:^CN=(.*)$/a\\/b/",
    "RULE:(.*)/$1\\$x/",
    "RULE:^OU=.*$/x/\nDEFAULT",
    "RULE:^CN=([^,]+).*$/$1/X",
    "RULE:^CN=/x",
    "NOPE",
    "RULE:",
    "default",
    "RULE:^CN=([^,]+).*$/$1/LU",
]
NAMES = [
    "CN=alice,OU=ServiceUsers,O=Org,C=AT",
    "CN=Bob,OU=x,O=Org,L=Wien,ST=Wien,C=AT",
    "CN=carol",
    "OU=nobody,O=Org",
    "CN=Ärger.1,O=a",
    "",
]


def ours(rules: str, name: str) -> str:
    try:
        return PrincipalMapper(rules).name_of(name)
    except BadRule:
        return "IllegalArgument"
    except NoRuleApplies:
        return "NoMatchingRule"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_names_and_rules_are_kafkas(tmp_path: Path) -> None:
    """Subjects of all kinds are written as Java's X500Principal writes them, and become the users
    that Kafka's SslPrincipalMapper makes of them; what it refuses is refused."""
    needs.apache()
    lines = [f"certificate {base64.b64encode(each).decode()}" for each in subjects()]
    pairs = [(rules, name) for rules in RULES for name in NAMES]
    lines += [f"rules {encoded(rules)} {encoded(name)}" for rules, name in pairs]
    questions = tmp_path / "questions"
    questions.write_text("\n".join(lines))
    answers = java.run_program(Path(__file__).with_name("Names.java"), str(questions)).split("\n")
    kafkas = [base64.b64decode(each).decode() for each in answers[: len(lines)]]
    found = [parse(each).subject for each in subjects()] + [ours(*each) for each in pairs]
    wrong = [
        (question if question[0] == "c" else pairs[place - len(subjects())], own, kafka)
        for place, (question, own, kafka) in enumerate(zip(lines, found, kafkas, strict=True))
        if own != kafka
    ]
    assert wrong == []


def test_until_when_it_holds() -> None:
    """In both forms of a time: before 2050, and after."""
    for year in (2030, 2049, 2050, 2051, 9999):
        found = parse(named([(NameOID.COMMON_NAME, "a")], year=year))
        assert found.ends == datetime.datetime(year, 6, 7, 8, 9, 10, tzinfo=datetime.UTC)
        assert found.begins == datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def test_what_is_no_certificate() -> None:
    """Every prefix of one, and every single wrong byte, is read or is a ValueError."""
    whole = authority().issue("somebody").certificate.public_bytes(Encoding.DER)
    for size in range(len(whole)):
        with pytest.raises(ValueError):
            parse(whole[:size])
    for place in range(len(whole)):
        broken = bytearray(whole)
        broken[place] ^= 0xFF
        try:
            parse(bytes(broken))
        except ValueError:
            pass


def test_a_chain() -> None:
    """All certificates of a text are found, whatever is between them."""
    text = f"key\n{authority().issue('a').certificate_pem} and {authority().pem}"
    assert [each.subject for each in parse_pem(text.encode())] == ["CN=a", "CN=test authority"]
