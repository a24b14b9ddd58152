"""What stands between sources, channels and sinks: interceptors, selectors, sink processors."""

from __future__ import annotations

from .between import extractor_serializers, failover_priorities, python_function
from .options import CHARSET, FLAG, FROM_1, NAMES, NUMBER, PATTERN, TEXT, Option, same
from .types import PartKind, PartType

INTERCEPTOR, SELECTOR, PROCESSOR = PartKind.INTERCEPTOR, PartKind.SELECTOR, PartKind.PROCESSOR


def preserve_existing(default: bool) -> Option:
    return Option("preserveExisting", FLAG, default, None, "Whether a header that is there stays.")


INTERCEPTORS = (
    PartType(
        INTERCEPTOR, "timestamp", ("org.apache.flume.interceptor.TimestampInterceptor",),
        "The time in milliseconds, as a header.",
        options=(
            Option("headerName", TEXT, "timestamp", None, "The header."),
            preserve_existing(False),
        ),
        renamed={"header": "headerName"},
    ),
    PartType(
        INTERCEPTOR, "host", ("org.apache.flume.interceptor.HostInterceptor",),
        "This host's address or name, as a header.",
        options=(
            Option("hostHeader", TEXT, "host", None, "The header."),
            Option("useIP", FLAG, True, None, "Whether it is the address rather than the name."),
            preserve_existing(False),
        ),
    ),
    PartType(
        INTERCEPTOR, "static", ("org.apache.flume.interceptor.StaticInterceptor",),
        "A header that is always the same.",
        options=(
            Option("key", TEXT, "key", None, "The header."),
            Option("value", TEXT, "value", None, "Its value."),
            preserve_existing(True),
        ),
    ),
    PartType(
        INTERCEPTOR, "remove_header", ("org.apache.flume.interceptor.RemoveHeaderInterceptor",),
        "Takes headers away.",
        options=(
            Option("withName", TEXT, None, None, "The header."),
            Option("fromList", TEXT, None, None, "Several headers."),
            Option("fromListSeparator", PATTERN, r"\s*,\s*", None, "What stands between them."),
            Option("matching", PATTERN, None, None, "The headers whose names match."),
        ),
    ),
    PartType(
        INTERCEPTOR, "uuid", ("org.apache.flume.sink.solr.morphline.UUIDInterceptor",),
        "A unique id, as a header.",
        options=(
            Option("headerName", TEXT, "id", None, "The header."),
            Option("prefix", TEXT, "", None, "What stands before the id."),
            preserve_existing(True),
        ),
    ),
    PartType(
        INTERCEPTOR, "search_replace",
        ("org.apache.flume.interceptor.SearchAndReplaceInterceptor",),
        "Replaces what matches in the body.",
        options=(
            Option("searchPattern", PATTERN, None, None, "What is replaced.", required=True),
            Option("replaceString", TEXT, "", None, "By what; $1 stands for the first group."),
            Option("charset", CHARSET, "utf-8", None, "The character set of the body."),
        ),
    ),
    PartType(
        INTERCEPTOR, "regex_filter", ("org.apache.flume.interceptor.RegexFilteringInterceptor",),
        "Keeps, or drops, the events whose body matches.",
        options=(
            Option("regex", PATTERN, ".*", None, "What is looked for."),
            Option("excludeEvents", FLAG, False, None, "Whether those that match are dropped."),
        ),
    ),
    PartType(
        INTERCEPTOR, "regex_extractor", ("org.apache.flume.interceptor.RegexExtractorInterceptor",),
        "Groups of a regular expression become headers.",
        options=(
            Option("regex", PATTERN, None, None,
                   "The regular expression, with groups.", required=True),
            Option("serializers", NAMES, None, None,
                   "A name for each group, in order.", required=True),
            Option("serializers.", TEXT, None, None,
                   "NAME.name is the header; NAME.type is default or millis (a time of "
                   "NAME.pattern)."),
        ),
        between=extractor_serializers,
    ),
    PartType(
        INTERCEPTOR, "python", (),
        "A Python function: it takes a batch of events and returns one.",
        options=(
            Option("function", TEXT, None, None, "MODULE:FUNCTION.", required=True, ours=True),
            Option("options.", TEXT, None, None,
                   "What the function is called with beside the batch.", ours=True),
        ),
        between=python_function,
    ),
)  # fmt: skip

SELECTORS = (
    PartType(
        SELECTOR, "replicating", ("org.apache.flume.channel.ReplicatingChannelSelector",),
        "Each event goes into all channels.",
        options=(
            Option("optional", NAMES, None, None, "Channels that may miss an event."),
        ),
    ),
    PartType(
        SELECTOR, "multiplexing", ("org.apache.flume.channel.MultiplexingChannelSelector",),
        "A header says which channels an event goes into.",
        options=(
            Option("header", TEXT, "flume.selector.header", None, "The header."),
            Option("mapping.", NAMES, None, None,
                   "The channels of a value of the header: mapping.VALUE."),
            Option("default", NAMES, None, None, "The channels of all other events."),
            Option("optional.", NAMES, None, None, "Channels of a value that may miss an event."),
        ),
    ),
    PartType(
        SELECTOR, "load_balancing", ("org.apache.flume.channel.LoadBalancingChannelSelector",),
        "Each batch goes into one of the channels.",
        options=(
            Option("policy", TEXT, "round_robin", None, "round_robin or random.",
                   choices=same("round_robin", "random")),
        ),
    ),
)  # fmt: skip

PROCESSORS = (
    PartType(
        PROCESSOR, "default", ("org.apache.flume.sink.DefaultSinkProcessor",),
        "One sink.",
    ),
    PartType(
        PROCESSOR, "failover", ("org.apache.flume.sink.FailoverSinkProcessor",),
        "The sink with the highest priority that works.",
        options=(
            Option("priority.", NUMBER, None, None, "The priority of a sink: priority.SINK."),
            Option("maxpenalty", NUMBER, 30_000, FROM_1,
                   "Milliseconds that a sink that failed is left out at most."),
        ),
        between=failover_priorities,
    ),
    PartType(
        PROCESSOR, "load_balance", ("org.apache.flume.sink.LoadBalancingSinkProcessor",),
        "The sinks in turn.",
        options=(
            Option("backoff", FLAG, False, None,
                   "Whether a sink that failed is left out for a while."),
            Option("selector", TEXT, "round_robin", None, "round_robin or random.",
                   choices=same("round_robin", "random")),
            Option("selector.maxTimeOut", NUMBER, 30_000, FROM_1,
                   "Milliseconds that it is left out at most."),
        ),
        renamed={"maxTimeOut": "selector.maxTimeOut"},
    ),
)  # fmt: skip
