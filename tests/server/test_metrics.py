"""Metrics: Kafka's names, Prometheus' text, and a hot path that costs an addition."""

import math
import re

from ottla.metrics import Histogram, Metrics, Sample

LINE = re.compile(
    r'[a-zA-Z_][a-zA-Z0-9_]*(\{[a-zA-Z_]+="(\\.|[^"\\\n])*"(,[a-zA-Z_]+="(\\.|[^"\\\n])*")*\})? '
    r"([-+0-9.e]+|NaN|[-+]Inf)"
)


def test_topic_counters_carry_the_names_of_the_mbeans() -> None:
    """Bytes and messages are counted by topic, and the value without a label is their sum."""
    metrics = Metrics()
    metrics.topic("first").bytes_in.value += 100
    metrics.topic("second").bytes_in.value += 20
    metrics.topic("first").messages_in.value += 3
    text = metrics.text()
    assert 'kafka_server_BrokerTopicMetrics_BytesInPerSec_total{topic="first"} 100\n' in text
    assert 'kafka_server_BrokerTopicMetrics_BytesInPerSec_total{topic="second"} 20\n' in text
    assert "kafka_server_BrokerTopicMetrics_BytesInPerSec_total 120\n" in text
    assert 'kafka_server_BrokerTopicMetrics_MessagesInPerSec_total{topic="first"} 3\n' in text
    assert "# TYPE kafka_server_BrokerTopicMetrics_BytesInPerSec_total counter\n" in text


def test_a_deleted_topic_goes_and_the_sum_stays() -> None:
    """Sums never fall, which Prometheus would take for a restart."""
    metrics = Metrics()
    metrics.topic("first").bytes_in.value += 100
    metrics.forget_topic("first")
    metrics.forget_topic("never-there")
    text = metrics.text()
    assert "first" not in text
    assert "kafka_server_BrokerTopicMetrics_BytesInPerSec_total 100\n" in text


def test_every_line_is_well_formed_whatever_the_labels_hold() -> None:
    """Quotes, backslashes and line ends in a label are escaped; odd numbers have their names."""
    metrics = Metrics()
    metrics.counter("odd", "Odd ones.", client='a"b\\c\nd').add(0.5)
    metrics.gauge("infinite", lambda: math.inf)
    metrics.gauge("unknown", lambda: math.nan)
    metrics.collect("gauge", lambda: [Sample("many", n, {"n": str(n)}) for n in range(3)])
    metrics.timer("took", "How long.").observe(0.3)
    for line in metrics.text().splitlines():
        assert line.startswith("# ") or LINE.fullmatch(line), line
    assert metrics.text().count("# TYPE many gauge") == 1


def test_a_histogram_counts_up_to_each_bound() -> None:
    """Buckets are cumulative and the last one holds everything."""
    histogram = Histogram((0.01, 0.1))
    for value in (0.01, 0.05, 0.5):
        histogram.observe(value)
    assert histogram.buckets == [1, 1, 1]
    assert histogram.count == 3
    metrics = Metrics()
    kept = metrics.timer("stall", "", (0.01, 0.1))
    kept.observe(0.05)
    assert kept is metrics.timer("stall")
    text = metrics.text()
    assert 'stall_bucket{le="0.01"} 0\n' in text
    assert 'stall_bucket{le="0.1"} 1\n' in text
    assert 'stall_bucket{le="+Inf"} 1\n' in text
    assert "stall_count 1\n" in text


def test_labels_without_end_do_not_grow_the_registry() -> None:
    """Beyond the limit of label values further ones are counted together."""
    from ottla import metrics as module

    metrics = Metrics()
    for number in range(module.LABELLED_MAX + 10):
        metrics.counter("by_client", client=str(number)).add()
    text = metrics.text()
    assert text.count("by_client_total{") == module.LABELLED_MAX + 1
    assert 'by_client_total{client="others"} 10\n' in text


def test_errors_are_counted_by_request_and_name() -> None:
    """Kafka's ErrorsPerSec has the request and the error as properties."""
    metrics = Metrics()
    metrics.error("Produce", "MESSAGE_TOO_LARGE")
    metrics.error("Produce", "MESSAGE_TOO_LARGE")
    wanted = 'ErrorsPerSec_total{request="Produce",error="MESSAGE_TOO_LARGE"} 2\n'
    assert wanted in metrics.text()
