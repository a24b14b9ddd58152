"""Prometheus' text, as far as a console has use for it: a few figures out of many lines.

Three spellings of Kafka's MBeans are understood: Ottla's own
(`kafka_server_BrokerTopicMetrics_BytesInPerSec_total{topic=…}`), that of the example rules of
jmx_prometheus_javaagent (`kafka_server_brokertopicmetrics_bytesin_total`), and what the agent says
without rules (`kafka_server_BrokerTopicMetrics_Count{name="BytesInPerSec",topic=…}`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

FIGURES_MAX = 200_000  # of one endpoint; a broker with more topics shows the first ones
VALUE_MAX = 1e18  # no counter is greater; infinity would be no number on a page
TOPIC, REQUEST, PROCESS = "topic", "request", "process"


class Figure(NamedTuple):
    """One value: what of whom. `part` tells the bucket of a histogram, the version of a request."""

    name: str  # bytes_in, requests, total_time_count …
    subject: str  # a topic or API; empty for the broker as a whole
    part: str
    value: float


# The metric in small letters, and the label `name` in small letters where there must be one.
NAMES: dict[tuple[str, str], tuple[str, str]] = {
    ("kafka_server_brokertopicmetrics_bytesinpersec_total", ""): ("bytes_in", TOPIC),
    ("kafka_server_brokertopicmetrics_bytesin_total", ""): ("bytes_in", TOPIC),
    ("kafka_server_brokertopicmetrics_count", "bytesinpersec"): ("bytes_in", TOPIC),
    ("kafka_server_brokertopicmetrics_bytesoutpersec_total", ""): ("bytes_out", TOPIC),
    ("kafka_server_brokertopicmetrics_bytesout_total", ""): ("bytes_out", TOPIC),
    ("kafka_server_brokertopicmetrics_count", "bytesoutpersec"): ("bytes_out", TOPIC),
    ("kafka_network_requestmetrics_requestspersec_total", ""): ("requests", REQUEST),
    ("kafka_network_requestmetrics_requests_total", ""): ("requests", REQUEST),
    ("kafka_network_requestmetrics_count", "requestspersec"): ("requests", REQUEST),
    ("kafka_network_requestmetrics_totaltimems_sum", ""): ("time_sum", REQUEST),
    ("kafka_network_requestmetrics_totaltimems_count", ""): ("time_count", REQUEST),
    ("kafka_network_requestmetrics_totaltimems_bucket", ""): ("time_bucket", REQUEST),
    ("kafka_network_requestmetrics_totaltimems", ""): ("time_quantile", REQUEST),
    ("kafka_network_requestmetrics_99thpercentile", "totaltimems"): ("time_p99", REQUEST),
    ("kafka_network_requestmetrics_mean", "totaltimems"): ("time_mean", REQUEST),
    ("kafka_server_socket_server_metrics_connection_count", ""): ("connections", PROCESS),
    ("kafka_server_socketservermetrics_connection_count", ""): ("connections", PROCESS),
    ("process_cpu_seconds_total", ""): ("cpu_s", PROCESS),
    ("process_resident_memory_bytes", ""): ("memory", PROCESS),
    ("ottla_build_info", ""): ("version", PROCESS),
}
# By their beginnings, so that the search skips the thousands of lines of other metrics quickly.
LINE = re.compile(
    rb"^((?:kafka_server_(?:brokertopicmetrics|socket_?server_?metrics)_"
    rb"|kafka_network_requestmetrics_|process_|ottla_build)\w+)(?:\{([^\n]*)\})?[ \t]+([^\s]+)",
    re.MULTILINE | re.IGNORECASE,
)
LABEL = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')
ESCAPED = re.compile(r"\\(.)")
PARTS = {
    "requests": "version",
    "time_bucket": "le",
    "time_quantile": "quantile",
    "version": "version",
    "connections": "",
}


def figures_in(text: bytes) -> Iterator[Figure]:
    """Every figure that is understood; what is not is left out."""
    found = 0
    for line in LINE.finditer(text):
        metric = line[1].decode().lower()
        labels = labels_of(line[2])
        known = NAMES.get((metric, labels.get("name", "").lower())) or NAMES.get((metric, ""))
        if known is None:
            continue
        try:
            value = float(line[3])
        except ValueError:
            continue
        if not abs(value) <= VALUE_MAX:  # or it is no number at all
            continue
        name, kind = known
        subject = labels.get(kind, "") if kind != PROCESS else ""
        part = labels.get(PARTS.get(name, ""), "")
        if name == "connections":  # of each network thread
            part = f"{labels.get('listener', '')} {labels.get('networkprocessor', '')}"
        if name == "time_bucket" and not is_bound(part):
            continue
        yield Figure(name, subject, part, value)
        found += 1
        if found >= FIGURES_MAX:
            return


def is_bound(text: str) -> bool:
    """Whether it is the upper bound of a bucket."""
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


def labels_of(raw: bytes | None) -> dict[str, str]:
    """The labels, their names in small letters."""
    if not raw:
        return {}
    return {
        name.decode().lower(): unescaped(value.decode(errors="replace"))
        for name, value in LABEL.findall(raw)
    }


def unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], value)
