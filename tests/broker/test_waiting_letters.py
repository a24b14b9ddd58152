"""Dead letters that cannot be written (KIP-1191): they wait, the log says so, nothing is lost."""

from __future__ import annotations

import pytest

from ottla.broker.shares.acknowledgements import ACCEPT, REJECT
from ottla.broker.shares.dead_letter_writer import COMPLAINT_INTERVAL_S, RETRY_S
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.harness import BrokerHarness
from tests.broker.test_share_fetches import SETTINGS, Member, a_queue, configure

LETTERS = "dlq.g"
ENABLED = {"errors_deadletterqueue_group_enable": "true"}


def with_letters(harness: BrokerHarness, records: int, **configs: str) -> Member:
    member = a_queue(harness, records)
    response = harness.ask(
        UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature="share.version", max_version_level=2)]
        ),
        1,
    )
    assert response.error_code == 0, response.error_message
    harness.create(LETTERS, 1, **configs)
    configure(harness, "g", errors_deadletterqueue_topic_name=LETTERS)
    assert member.fetch(0) == [(0, records - 1, 1)]
    return member


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "WARNING" and "dead letters" in record.getMessage()
    ]


def test_letters_wait_for_as_long_as_it_takes(caplog: pytest.LogCaptureFixture) -> None:
    """After five attempts the log says so, once; when the topic is there again they are written."""
    with BrokerHarness(**SETTINGS) as harness:
        member = with_letters(harness, 10, **ENABLED)
        letters = harness.partition(LETTERS)
        letters.cut_off = True
        assert member.say(REJECT, [(0, 9)]) == 0
        harness.advance(RETRY_S * 1000 * 14)
        assert warnings_in(caplog) == []
        harness.advance(3_600_000)
        [warning] = warnings_in(caplog)
        assert "share group g: 10 dead letters of queue-0 from offset 0 on wait" in warning
        assert letters.end_offset == 0
        letters.cut_off = False
        harness.advance(60_000)
        assert letters.end_offset == 10
        assert len(warnings_in(caplog)) == 1


def test_who_does_not_want_to_wait_takes_the_topic_away(caplog: pytest.LogCaptureFixture) -> None:
    """Then what waits is given up, and the queue goes on."""
    with BrokerHarness(**SETTINGS) as harness:
        member = with_letters(harness, 10, **ENABLED)
        configure(harness, "g", share_partition_max_record_locks=100)
        harness.partition(LETTERS).cut_off = True
        assert member.say(REJECT, [(0, 9)]) == 0
        for _ in range(10):
            harness.produce("queue", 0, *[b"v"] * 10)
        assert member.fetch(max_records=90) == [(10, 99, 1)]
        assert member.say(ACCEPT, [(10, 99)]) == 0
        configure(harness, "g", errors_deadletterqueue_topic_name="")
        harness.advance(60_000)
        assert member.fetch() == [(100, 109, 1)]
        assert member.say(ACCEPT, [(100, 109)]) == 0


def test_records_without_letters_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """Which they are and why, in a line now and then, not one for each."""
    with BrokerHarness(**SETTINGS) as harness:
        member = with_letters(harness, 20)
        for number in range(10):
            assert member.say(REJECT, [(2 * number, 2 * number + 1)]) == 0
            harness.settle()
        [warning] = warnings_in(caplog)
        assert "2 records are given up without dead letters" in warning
        assert "queue-0 at offsets 0 to 1: DLQ is not enabled" in warning
        harness.advance(COMPLAINT_INTERVAL_S * 1000)
        assert len(warnings_in(caplog)) == 2
        assert "18 records" in warnings_in(caplog)[1]
        assert "queue-0 at offsets 18 to 19" in warnings_in(caplog)[1]
        harness.advance(COMPLAINT_INTERVAL_S * 10_000)
        assert len(warnings_in(caplog)) == 2
