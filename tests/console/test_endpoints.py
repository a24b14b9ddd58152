"""Figures of brokers from Prometheus' text: spellings, rates, quantiles, endpoints that fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ottla.console.collecting.endpoints import (
    Endpoint,
    Endpoints,
    TopicFigures,
    quantile,
    split_id,
)
from ottla.console.collecting.exposition import Figure, figures_in

OTTLA = b"""# TYPE kafka_server_BrokerTopicMetrics_BytesInPerSec_total counter
kafka_server_BrokerTopicMetrics_BytesInPerSec_total 73
kafka_server_BrokerTopicMetrics_BytesInPerSec_total{topic="t\\"1\\\\n"} 70
kafka_network_RequestMetrics_RequestsPerSec_total{request="Produce",version="13"} 5
kafka_network_RequestMetrics_TotalTimeMs_bucket{request="Produce",le="+Inf"} 5
kafka_log_Log_Size{topic="t1",partition="0"} 1
process_resident_memory_bytes 42
ottla_build_info{version="0.1"} 1
"""
RULES = b"""kafka_server_brokertopicmetrics_bytesin_total{topic="t1",} 70.0
kafka_network_requestmetrics_requests_total{request="Produce",version="13",} 5.0
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99",} 8.0
kafka_server_socket_server_metrics_connection_count{listener="A",networkprocessor="0",} 2.0
kafka_server_socket_server_metrics_connection_count{listener="A",networkprocessor="1",} NaN
"""
NO_RULES = b"""kafka_server_BrokerTopicMetrics_Count{name="BytesInPerSec",topic="t1",} 70.0
kafka_server_BrokerTopicMetrics_OneMinuteRate{name="BytesInPerSec",topic="t1",} 7.0
kafka_network_RequestMetrics_Count{name="RequestsPerSec",request="Produce",version="13",} 5.0
kafka_network_RequestMetrics_99thPercentile{name="TotalTimeMs",request="Produce",} 8.0
"""


def test_figures_that_cannot_be_are_left_out() -> None:
    """An endpoint that says infinity, or a bound that is none, does not stop the collecting."""
    text = b"""process_resident_memory_bytes +Inf
process_resident_memory_bytes 1e300
kafka_network_RequestMetrics_TotalTimeMs_bucket{request="Produce",le="soon"} 5
kafka_network_RequestMetrics_TotalTimeMs_bucket{request="Produce",le="NaN"} 5
kafka_network_RequestMetrics_TotalTimeMs_bucket{request="Produce",le="+Inf"} 5
kafka_network_RequestMetrics_RequestsPerSec_total{request="Produce",version="13"} 5
"""
    endpoint = Endpoint("http://127.0.0.1:1/")
    for each in (1, 2):
        endpoint._take(figures_in(text.replace(b" 5", b" %d" % (5 * each))), each * 1000)
    found = endpoint.broker(2000)
    assert found.memory_bytes is None
    assert [(each.api, each.rate) for each in found.requests] == [("Produce", 5.0)]


def test_three_spellings_are_understood() -> None:
    """Ottla's names, those of the agent's example rules and those without rules; the rest is left
    out, and so is what is not a number."""
    assert set(figures_in(OTTLA)) == {
        Figure("bytes_in", "", "", 73),
        Figure("bytes_in", 't"1\\n', "", 70),
        Figure("requests", "Produce", "13", 5),
        Figure("time_bucket", "Produce", "+Inf", 5),
        Figure("memory", "", "", 42),
        Figure("version", "", "0.1", 1),
    }
    assert set(figures_in(RULES)) == {
        Figure("bytes_in", "t1", "", 70),
        Figure("requests", "Produce", "13", 5),
        Figure("time_quantile", "Produce", "0.99", 8),
        Figure("connections", "", "A 0", 2),
    }
    assert set(figures_in(NO_RULES)) == {
        Figure("bytes_in", "t1", "", 70),
        Figure("requests", "Produce", "13", 5),
        Figure("time_p99", "Produce", "", 8),
    }


def test_rates_follow_from_two_readings() -> None:
    """Bytes of a topic and of the broker, requests with mean and quantile; a counter that went
    back gives none until the next reading."""
    endpoint = Endpoint("http://x/metrics")
    first = [
        Figure("bytes_in", "t1", "", 100.0),
        Figure("requests", "Fetch", "12", 10.0),
        Figure("requests", "Fetch", "13", 10.0),
        Figure("time_count", "Fetch", "", 20.0),
        Figure("time_sum", "Fetch", "", 100.0),
        Figure("time_bucket", "Fetch", "1", 10.0),
        Figure("time_bucket", "Fetch", "2", 20.0),
        Figure("time_bucket", "Fetch", "+Inf", 20.0),
    ]
    endpoint._take(first, 1_000)
    assert endpoint.broker(1_000).bytes_in is None
    endpoint._take([each._replace(value=each.value * 2) for each in first], 3_000)
    broker = endpoint.broker(4_000)
    assert broker.age_ms == 1_000
    assert broker.bytes_in == 50.0
    assert endpoint.topics() == {"t1": (50.0, None)}
    (fetch,) = broker.requests
    assert (fetch.api, fetch.rate, fetch.mean_ms) == ("Fetch", 10.0, 5.0)
    assert fetch.p99_ms == pytest.approx(1.98)
    endpoint._take(first, 5_000)
    assert endpoint.broker(5_000).bytes_in is None


def test_a_quantile_above_all_bounds_is_the_last_one() -> None:
    """As Prometheus: what lies in the bucket without an end is said to be its beginning."""
    assert quantile([(1.0, 1.0), (float("inf"), 100.0)], 0.99) == 1.0
    assert quantile([(1.0, 0.0), (float("inf"), 0.0)], 0.99) is None
    assert quantile([], 0.99) is None


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.authorization = self.headers["Authorization"]  # type: ignore[attr-defined]
        body = {"/one": OTTLA, "/other": b"<html>not metrics</html>"}.get(self.path)
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *words: object) -> None:
        """Not on stderr."""


@pytest.fixture
def web() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_endpoints_that_fail_say_why_and_leave_the_others(web: ThreadingHTTPServer) -> None:
    """One answers, one has no metrics, one is missing, nobody listens at the last."""
    at = f"http://127.0.0.1:{web.server_port}"
    endpoints = Endpoints(
        [f"7={at}/one", f"{at}/other", f"{at}/missing", "http://127.0.0.1:1/metrics"]
    )
    endpoints.start_reading()
    endpoints.finish_reading(60)
    found = endpoints.by_broker([5, 6, 7, 8])
    assert {broker: each.error for broker, each in found.items() if broker != 8} == {
        7: None,
        5: "there are no metrics of a broker",
        6: "HTTP Error 404: Not Found",
    }
    assert "refused" in str(found[8].error)
    assert found[7].broker(found[7].read_ms or 0).memory_bytes == 42
    assert found[5].broker(0).age_ms is None
    endpoints.close()


def test_a_password_in_the_url_is_sent_and_not_shown(web: ThreadingHTTPServer) -> None:
    """It becomes a header of the request; what pages and logs show has none."""
    endpoint = Endpoint(f"http://me:secret@127.0.0.1:{web.server_port}/one")
    endpoint.read()
    assert endpoint.error is None
    assert "secret" not in endpoint.url
    assert web.authorization == "Basic bWU6c2VjcmV0"  # type: ignore[attr-defined]


def test_topics_are_summed_over_brokers() -> None:
    """A topic's rate is that of all its brokers; None where none says it."""
    endpoints = Endpoints(["http://a/", "http://b/"])
    for each in endpoints._endpoints:
        each._take([Figure("bytes_in", "t", "", 0.0)], 0)
        each._take([Figure("bytes_in", "t", "", 10.0)], 1000)
    assert endpoints.topics() == {"t": TopicFigures(20.0, None)}
    assert split_id("3=http://a/?b=c") == (3, "http://a/?b=c")
    assert split_id("http://a/?b=c") == (None, "http://a/?b=c")
    endpoints.close()
