"""What the broker counts, under the names of Kafka's MBeans, as Prometheus reads it.

`kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=first` becomes
`kafka_server_BrokerTopicMetrics_BytesInPerSec_total{topic="first"}`: domain, type and name joined
by `_`, the other properties as labels, `_total` for what only grows. Kafka's rates are left to
Prometheus, which computes them from the counts.

Counting is one addition to an attribute: whoever counts keeps the `Counter` and does
`counter.value += n` (or `add`). What can be looked up is not counted at all: a gauge is a function
that is called when somebody asks, and a collector yields many such samples at once (one per
partition, one per API).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Topics of which metrics are kept: beyond it further ones count as one, so that clients which
# create topics without end do not grow the broker.
LABELLED_MAX = 20_000

# Upper bounds in seconds: a loop that stalls, a request that takes long.
STALL_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
TIME_BOUNDS_S = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One value that a collector found."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


class Counter:
    """Something that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        self.value += amount


class Histogram:
    """How often what took how long, in buckets."""

    __slots__ = ("bounds", "buckets", "sum")

    def __init__(self, bounds: tuple[float, ...] = TIME_BOUNDS_S) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.buckets)


Collector = Callable[[], Iterable[Sample]]


class Metrics:
    """All metrics of one broker."""

    content_type = CONTENT_TYPE

    def __init__(self) -> None:
        self._help: dict[str, str] = {}
        self._counters: dict[str, dict[Labels, Counter]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}
        self._gauges: dict[str, Callable[[], float]] = {}
        self._collectors: list[tuple[str, Collector]] = []
        self._topics: dict[str, TopicMetrics] = {}
        self._deleted_topics = TopicMetrics(self, None)

    def counter(self, name: str, help_: str = "", /, **labels: str) -> Counter:
        """The counter of that name and labels, made when it is new. Keep it; do not ask again."""
        family = self._counters.setdefault(name, {})
        if help_:
            self._help[name] = help_
        key = tuple(labels.items())
        found = family.get(key)
        if found is None:
            if len(family) >= LABELLED_MAX:
                key = tuple((label, "others") for label in labels)
            found = family.setdefault(key, Counter())
        return found

    def timer(
        self,
        name: str,
        help_: str = "",
        bounds: tuple[float, ...] = TIME_BOUNDS_S,
        /,
        **labels: str,
    ) -> Histogram:
        """A histogram of seconds, made when it is new."""
        family = self._histograms.setdefault(name, {})
        if help_:
            self._help[name] = help_
        return family.setdefault(tuple(labels.items()), Histogram(bounds))

    def gauge(self, name: str, read: Callable[[], float], help_: str = "") -> None:
        """A value that is looked up when somebody asks."""
        self._gauges[name] = read
        self._help[name] = help_

    def collect(self, kind: str, collector: Collector) -> None:
        """Many values that are looked up together, those of one name one after the other.

        `kind` is "gauge" or "counter".
        """
        self._collectors.append((kind, collector))

    def error(self, request: str, error: str) -> None:
        """An answer carried an error; `request` and `error` are Kafka's names."""
        self.counter(
            "kafka_network_RequestMetrics_ErrorsPerSec",
            "Errors in answers.",
            request=request,
            error=error,
        ).value += 1

    def topic(self, name: str) -> TopicMetrics:
        """What is counted of one topic. Kafka's sums over all topics are made when asked for."""
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = TopicMetrics(self, name)
        return found

    def forget_topic(self, name: str) -> None:
        """The topic is deleted: its own counts go, the sums over all topics stay."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            for metric in TOPIC_METRICS:
                getattr(self._deleted_topics, metric).value += getattr(topic, metric).value
                self._counters[_topic_metric(metric)].pop((("topic", name),), None)

    def text(self) -> str:
        """All of it, as Prometheus reads it."""
        return "".join(f"{line}\n" for line in self.lines())

    def lines(self) -> Iterator[str]:
        """The same line by line: 10,000 partitions are many lines, and the loop must go on."""
        for name, counters in sorted(self._counters.items()):
            yield from self._head(f"{name}_total", name, "counter")
            summed = name.startswith(_TOPIC_PREFIX)
            for labels, counter in list(counters.items()):
                value = counter.value
                if summed and not labels:
                    value = sum(each.value for each in counters.values())
                yield f"{name}_total{_labels(labels)} {_number(value)}"
        for name, histograms in sorted(self._histograms.items()):
            yield from self._head(name, name, "histogram")
            for labels, histogram in histograms.items():
                yield from _histogram_lines(name, labels, histogram)
        for name, read in sorted(self._gauges.items()):
            yield from self._head(name, name, "gauge")
            yield f"{name} {_number(read())}"
        for kind, collector in self._collectors:
            suffix = "_total" if kind == "counter" else ""
            family = ""
            for name, value, labels_of in collector():
                if name != family:  # the samples of one name come together
                    family = name
                    yield from self._head(name + suffix, name, kind)
                yield f"{name}{suffix}{_labels(labels_of.items())} {_number(value)}"

    def _head(self, shown: str, name: str, kind: str) -> Iterator[str]:
        help_ = self._help.get(name)
        if help_:
            yield f"# HELP {shown} {help_}"
        yield f"# TYPE {shown} {kind}"


_TOPIC_PREFIX = "kafka_server_BrokerTopicMetrics_"

# Kafka's kafka.server:type=BrokerTopicMetrics, as far as one node has use for them.
TOPIC_METRICS = {
    "bytes_in": ("BytesInPerSec", "Bytes of records that producers sent."),
    "bytes_out": ("BytesOutPerSec", "Bytes of records that consumers were sent."),
    "messages_in": ("MessagesInPerSec", "Records that producers sent."),
    "bytes_rejected": ("BytesRejectedPerSec", "Bytes of records that were refused."),
    "produce_requests": ("TotalProduceRequestsPerSec", "Writes to partitions."),
    "fetch_requests": ("TotalFetchRequestsPerSec", "Reads of partitions."),
    "failed_produce": ("FailedProduceRequestsPerSec", "Writes to partitions that failed."),
    "failed_fetch": ("FailedFetchRequestsPerSec", "Reads of partitions that failed."),
}


def _topic_metric(name: str) -> str:
    return _TOPIC_PREFIX + TOPIC_METRICS[name][0]


class TopicMetrics:
    """The counters of one topic: keep them with the topic, and add to `.value`."""

    __slots__ = tuple(TOPIC_METRICS)

    bytes_in: Counter
    bytes_out: Counter
    messages_in: Counter
    bytes_rejected: Counter
    produce_requests: Counter
    fetch_requests: Counter
    failed_produce: Counter
    failed_fetch: Counter

    def __init__(self, metrics: Metrics, topic: str | None) -> None:
        labels = {} if topic is None else {"topic": topic}
        for name, (_, help_) in TOPIC_METRICS.items():
            setattr(self, name, metrics.counter(_topic_metric(name), help_, **labels))


def _histogram_lines(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    seen = 0
    for bound, found in zip((*histogram.bounds, None), histogram.buckets, strict=True):
        seen += found
        shown = "+Inf" if bound is None else f"{bound:g}"
        yield f"{name}_bucket{_labels((*labels, ('le', shown)))} {seen}"
    yield f"{name}_sum{_labels(labels)} {_number(histogram.sum)}"
    yield f"{name}_count{_labels(labels)} {seen}"


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
