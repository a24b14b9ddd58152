"""Rules between the options of one part."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .options import Options
from .patterns import BAD_PATTERN, python_pattern
from .types import Complaint


def tail_groups(options: Options) -> Iterator[Complaint]:
    """Each group of `filegroups` has a path whose last part is a regular expression."""
    paths = options.family("filegroups.")
    groups = options.names("filegroups")
    for group in groups:
        if group not in paths:
            hint = f"filegroups.{group} = /var/log/app/.*log"
            yield Complaint("filegroups", f"names {group}, and filegroups.{group} is missing", hint)
    for group, path in paths.items():
        if not path.startswith("/"):
            hint = f"filegroups.{group} = /var/log/{path}"
            yield Complaint(f"filegroups.{group}", "must be an absolute path", hint)
            continue
        try:
            re.compile(python_pattern(path.rpartition("/")[2]))
        except BAD_PATTERN as error:
            rule = f"must end in a regular expression: {error}"
            yield Complaint(f"filegroups.{group}", rule, f"filegroups.{group} = /var/log/app/.*log")
    for name in options.family("headers."):
        group, dot, header = name.partition(".")
        if not dot or not header or group not in groups:
            known = ", ".join(groups) or "none is there"
            rule = f"must be headers.GROUP.NAME with a group of filegroups ({known})"
            yield Complaint(f"headers.{name}", rule, "headers.f1.NAME = VALUE")
    yield from multiline(options)


def multiline(options: Options) -> Iterator[Complaint]:
    patterns = [
        name
        for name in ("deserializer.firstLine", "deserializer.continuation")
        if options.given(name)
    ]
    if options.text("deserializer") == "multiline":
        if len(patterns) != 1:
            rule = "must have one of deserializer.firstLine and deserializer.continuation"
            yield Complaint("deserializer", rule, r"deserializer.firstLine = ^\\d{4}-\\d\\d-\\d\\d")
    elif patterns:
        rule = "is for deserializer = multiline"
        yield Complaint(patterns[0], rule, "deserializer = multiline")


def kafka_source_topics(options: Options) -> Iterator[Complaint]:
    if not options.names("kafka.topics") and not options.given("kafka.topics.regex"):
        rule = "or kafka.topics.regex must be set"
        yield Complaint("kafka.topics", rule, "kafka.topics = TOPIC")


def tls_needs_a_certificate(options: Options) -> Iterator[Complaint]:
    if not options.flag("ssl"):
        return
    if not options.given("keystore"):
        yield Complaint("ssl", "needs keystore", "keystore = server.pem, keystore-type = PEM")
    if options.text("keystore-type") != "pem":
        rule = "must be PEM with ssl: Java's keystores are not read here"
        hint = (
            "keytool -importkeystore -deststoretype PKCS12 …, openssl pkcs12 -in … -out server.pem"
        )
        yield Complaint("keystore-type", rule, f"keystore-type = PEM after {hint}")


def extractor_serializers(options: Options) -> Iterator[Complaint]:
    """Each serializer of `serializers` has a name for its header; there is a group for each."""
    settings = options.family("serializers.")
    serializers = options.names("serializers")
    for serializer in serializers:
        if not settings.get(f"{serializer}.name"):
            rule = f"names {serializer}, and serializers.{serializer}.name is missing"
            yield Complaint("serializers", rule, f"serializers.{serializer}.name = HEADER")
        kind = settings.get(f"{serializer}.type", "default")
        if kind.removesuffix("$Builder") not in EXTRACTOR_SERIALIZERS and kind.lower() != "default":
            name = f"serializers.{serializer}.type"
            rule = "must be default or millis: Java's classes do not run here"
            yield Complaint(name, rule, f"{name} = default")
        elif "illis" in kind and not settings.get(f"{serializer}.pattern"):
            name = f"serializers.{serializer}.pattern"
            yield Complaint(name, "must be set for millis", f"{name} = yyyy-MM-dd HH:mm:ss")
    groups = re.compile(python_pattern(options.text("regex"))).groups
    if groups < len(serializers):
        rule = f"has {groups} groups in parentheses, and there are {len(serializers)} serializers"
        yield Complaint("regex", rule, "a group for each serializer")


EXTRACTOR_SERIALIZERS = {
    "default",
    "millis",
    "org.apache.flume.interceptor.RegexExtractorInterceptorPassThroughSerializer",
    "org.apache.flume.interceptor.RegexExtractorInterceptorMillisSerializer",
}


def failover_priorities(options: Options) -> Iterator[Complaint]:
    seen: dict[int, str] = {}
    for sink, text in options.family("priority.").items():
        name = f"priority.{sink}"
        if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
            yield Complaint(name, f"must be a whole number (got {text!r})", f"{name} = 10")
            continue
        other = seen.setdefault(int(text), sink)
        if other != sink:
            rule = f"must differ from that of {other}, which is {text.strip()} too"
            yield Complaint(name, rule, f"{name} = {int(text) + 1}")


def transaction_within_capacity(options: Options) -> Iterator[Complaint]:
    capacity, transaction = options.number("capacity"), options.number("transactionCapacity")
    if transaction > capacity:
        rule = f"must be no more than capacity, {capacity}"
        if options.given("transactionCapacity"):
            yield Complaint("transactionCapacity", rule, f"transactionCapacity = {capacity}")


def python_function(options: Options) -> Iterator[Complaint]:
    name = options.text("function")
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", name):
        yield Complaint("function", "must be MODULE:FUNCTION", "function = mymodule:keep")
