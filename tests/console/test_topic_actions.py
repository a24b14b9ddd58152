"""Create, delete, grow and truncate topics, change configs: what is previewed, asked, recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.client.admin import OffsetSpec, OffsetTimestamp
from ottla.client.errors import KafkaError, KafkaTimeoutError
from ottla.client.structs import OffsetAndTimestamp, TopicPartition
from ottla.console.access.permissions import Grant, Principal, Role

from .pictures import HOSTILE, Browser, browser, picture
from .recording import RecordingAdmin

VIEWER = Principal("vera", (Grant(Role.VIEWER),))
SOME_TOPICS = Principal("tom", (Grant(Role.ADMIN, "*", "topic-0001"), Grant(Role.VIEWER)))


def created(topics: list[Any], **options: Any) -> dict[str, Any]:
    told = {"num_partitions": 6, "replication_factor": 1, "configs": {}}
    return {"topics": [{"name": topics[0].name, **told}]}


def offsets(asked: Mapping[TopicPartition, Any]) -> dict[TopicPartition, OffsetAndTimestamp]:
    def at(spec: Any) -> int:
        if isinstance(spec, OffsetTimestamp):
            return 50
        return 1000 if spec == OffsetSpec.LATEST else 0

    return {each: OffsetAndTimestamp(at(spec), -1, 0) for each, spec in asked.items()}


def configs(resources: list[Any], **options: Any) -> dict[str, Any]:
    plain = {
        "value": "100",
        "read_only": False,
        "config_source": "DYNAMIC_TOPIC_CONFIG",
        "is_sensitive": False,
        "synonyms": [
            {"name": "retention.ms", "value": "100", "source": "DYNAMIC_TOPIC_CONFIG"},
            {"name": "log.retention.ms", "value": "777", "source": "DEFAULT_CONFIG"},
        ],
        "config_type": "LONG",
        "documentation": "",
    }
    secret = {**plain, "value": None, "is_sensitive": True}
    [one] = resources
    kind = one.resource_type.name.lower()
    return {kind: {one.name: {"retention.ms": plain, "ssl.key.password": secret}}}


def admin(**more: Any) -> RecordingAdmin:
    return RecordingAdmin(
        **{
            "create_topics": created,
            "delete_topics": lambda names, **options: {
                "topics": [{"name": each, "error_code": 0, "error_message": None} for each in names]
            },
            "create_partitions": {"results": []},
            "list_partition_offsets": offsets,
            "delete_records": {},
            "describe_configs": configs,
            "alter_configs": lambda resources, **options: {"topic": {resources[0].name: "OK"}},
            **more,
        }
    )


CREATE = {"topic": "fresh", "partitions": "6", "policy": "compact", "configs": "a=1\n# no\nb = x=y"}
DELETE = {"topic": ["topic-0001"]}
TRUNCATE = {"topic": "topic-0001", "until": "all"}
GROW = {"topic": "topic-0001", "total": "12"}
CONFIG = {"kind": "topic", "name": "topic-0001", "config": "retention.ms", "value": "200"}
ACTIONS = [
    ("create-topic", CREATE, {}),
    ("delete-topics", DELETE, {"confirm": "topic-0001"}),
    ("add-partitions", GROW, {}),
    ("truncate", {**TRUNCATE, "offsets": "0:1000,1:1000"}, {"confirm": "topic-0001"}),
    ("change-config", CONFIG, {}),
]


def test_create_is_checked_by_the_cluster_then_done_as_previewed() -> None:
    """The preview asks with validate_only and shows what the cluster says; then it is created."""
    asked = admin()
    pages = browser(picture(), asked)
    assert "Name" in pages.get("/c/main/create-topic").text
    text = pages.submit("/c/main/create-topic", CREATE).text
    assert "What will happen" in text
    assert not asked.changes()
    assert asked.calls[0][2] == {"validate_only": True}
    answer = pages.submit("/c/main/create-topic", {**CREATE, "step": "do"})
    assert "Topic fresh was created." in answer.text
    [(_, (topics,), _)] = asked.changes()
    assert (topics[0].num_partitions, topics[0].replication_factor) == (6, -1)
    assert topics[0].topic_configs == {"a": "1", "b": "x=y", "cleanup.policy": "compact"}
    assert pages.cluster.refreshed.is_set()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"topic": ""}, "a topic needs one"),
        ({"topic": "a", "partitions": "many"}, "partitions: a whole number"),
        ({"topic": "a", "policy": "burn"}, "cleanup policy: one of"),
        ({"topic": "a", "configs": "nonsense"}, "configs: name=value"),
    ],
)
def test_a_wrong_form_comes_back_with_what_is_wrong(fields: dict[str, str], said: str) -> None:
    """Nothing is asked of the cluster, and the form keeps what was typed."""
    asked = admin()
    answer = browser(picture(), asked).submit("/c/main/create-topic", fields)
    assert answer.status_code == 422
    assert said in answer.text
    assert f'value="{fields["topic"]}"' in answer.text
    assert not asked.calls


def test_what_the_cluster_refuses_is_shown_in_the_form() -> None:
    """Its own words, nothing done."""
    asked = admin(create_topics=KafkaError("the name is too long"))
    answer = browser(picture(), asked).submit("/c/main/create-topic", {"topic": "fresh"})
    assert answer.status_code == 422
    assert "the name is too long" in answer.text


@pytest.mark.parametrize(
    ("name", "fields"), [("delete-topics", DELETE), ("truncate", {**TRUNCATE, "offsets": "0:1"})]
)
def test_what_destroys_asks_for_the_name(name: str, fields: dict[str, Any]) -> None:
    """Without the typed name, or with another, nothing is done and the preview says so."""
    for typed in ({}, {"confirm": "topic-0002"}, {"confirm": "TOPIC-0001"}):
        asked = admin()
        pages = browser(picture(), asked)
        answer = pages.submit(f"/c/main/{name}", {**fields, **typed, "step": "do"})
        assert answer.status_code == 422
        assert "nothing was changed" in answer.text
        assert not asked.changes()


def test_the_preview_of_a_deletion_names_what_is_lost() -> None:
    """Records, and the groups that read it now."""
    answer = browser(picture(), admin()).submit("/c/main/delete-topics", DELETE)
    assert "1,998 records will be lost" in answer.text
    assert "group-001" in answer.text
    assert 'data-type-to-confirm="topic-0001"' in answer.text


def test_several_topics_are_deleted_at_once() -> None:
    """With a phrase to type that says how many; what fails of them is said."""
    asked = admin()
    pages = browser(picture(), asked)
    fields = {"topic": ["topic-0001", "topic-0002"], "confirm": "delete 2 topics", "step": "do"}
    assert "2 topics were deleted." in pages.submit("/c/main/delete-topics", fields).text
    assert asked.changes()[0][1] == (["topic-0001", "topic-0002"],)
    told = [
        {"name": "topic-0001", "error_code": 0, "error_message": None},
        {"name": "topic-0002", "error_code": 3, "error_message": None},
    ]
    pages = browser(picture(), admin(delete_topics={"topics": told}))
    text = pages.submit("/c/main/delete-topics", fields).text
    assert "1 of 2 were deleted" in text
    assert pages.access.entries[-1].result == "failed"
    assert (
        "Choose a topic first" in browser(picture(), admin()).submit("/c/main/delete-topics").text
    )


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"until": "all"}, "0:1000,1:1000,2:1000"),
        ({"until": "time", "time": "2026-01-01T00:00"}, "0:50,1:50,2:50"),
        ({"until": "offset", "offset": "70", "partition": "1"}, "1:70"),
        ({"until": "offset", "offset": "9999", "partition": "2"}, "2:1000"),
    ],
)
def test_truncation_is_previewed_per_partition(form: dict[str, str], expected: str) -> None:
    """The offsets that the preview found are what is sent then."""
    asked = admin()
    pages = browser(picture(), asked)
    answer = pages.submit("/c/main/truncate", {"topic": "topic-0001", **form})
    assert f'name="offsets" value="{expected}"' in answer.text
    done = {"topic": "topic-0001", "offsets": expected, "confirm": "topic-0001", "step": "do"}
    pages.submit("/c/main/truncate", done)
    [(_, (sent,), _)] = asked.changes()
    assert ",".join(f"{each.partition}:{at}" for each, at in sent.items()) == expected


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"until": "time", "time": "noon"}, "time: such as"),
        ({"until": "offset"}, "offset: 0 or more"),
        ({"until": "offset", "offset": "-1"}, "offset: 0 or more"),
        ({"partition": "99"}, "partition: from 0 to 2"),
    ],
)
def test_a_truncation_that_cannot_be_is_said(form: dict[str, str], said: str) -> None:
    """The form comes back with the reason."""
    answer = browser(picture(), admin()).submit("/c/main/truncate", {"topic": "topic-0001", **form})
    assert answer.status_code == 422
    assert said in answer.text


def test_partitions_are_added_after_a_check() -> None:
    """The preview warns of what keys lose."""
    asked = admin()
    pages = browser(picture(), asked)
    assert "cannot be taken away again" in pages.submit("/c/main/add-partitions", GROW).text
    assert not asked.changes()
    pages.submit("/c/main/add-partitions", {**GROW, "step": "do"})
    assert asked.changes()[0][1] == ({"topic-0001": 12},)


def test_a_config_is_changed_and_put_back() -> None:
    """The preview shows the value now and then; putting back shows what holds below."""
    asked = admin()
    pages = browser(picture(), asked)
    address = "/c/main/change-config?kind=topic&name=topic-0001&config=retention.ms"
    assert 'value="100"' in pages.get(address).text
    text = pages.submit("/c/main/change-config", CONFIG).text
    assert '<td class="number">100</td>' in text
    assert '<td class="number">200</td>' in text
    text = pages.submit("/c/main/change-config", {**CONFIG, "reset": "1"}).text
    assert '<td class="number">777</td>' in text
    assert not asked.changes()
    pages.submit("/c/main/change-config", {**CONFIG, "step": "do"})
    pages.submit("/c/main/change-config", {**CONFIG, "reset": "1", "step": "do"})
    sent = [call[1][0][0].configs["retention.ms"] for call in asked.changes()]
    assert [(operation.name, value) for operation, value in sent] == [
        ("SET", "200"),
        ("DELETE", None),
    ]
    assert [entry.detail for entry in pages.access.entries] == [
        "retention.ms = 200",
        "retention.ms was put back.",
    ]


def test_a_secret_is_in_no_page_and_no_log() -> None:
    """The value of a sensitive config is typed anew, and the audit log does not have it."""
    pages = browser(picture(), admin())
    fields = {"kind": "broker", "name": "", "config": "ssl.key.password", "value": "hunter2"}
    text = pages.submit("/c/main/change-config", fields).text
    assert 'type="password" name="value"' in text
    assert "hunter2" not in text
    pages.submit("/c/main/change-config", {**fields, "step": "do"})
    assert "hunter2" not in str(pages.access.entries)
    assert pages.access.entries[-1].result == "done"


def done(pages: Browser, name: str, fields: dict[str, Any], typed: dict[str, Any]) -> Any:
    return pages.submit(f"/c/main/{name}", {**fields, **typed, "step": "do"})


@pytest.mark.parametrize(("name", "fields", "typed"), ACTIONS)
def test_every_change_is_audited(name: str, fields: dict[str, Any], typed: dict[str, Any]) -> None:
    """Done and failed alike: who, what, on what."""
    pages = browser(picture(), admin())
    done(pages, name, fields, typed)
    [entry] = pages.access.entries
    assert (entry.user, entry.action, entry.cluster, entry.result) == (
        "local",
        name,
        "main",
        "done",
    )
    assert entry.target
    failing = RecordingAdmin(**{each: KafkaTimeoutError("no answer") for each in admin().answers})
    pages = browser(picture(), failing)
    assert "no answer" in done(pages, name, fields, typed).text
    assert [entry.result for entry in pages.access.entries] == ["failed"]


@pytest.mark.parametrize(("name", "fields", "typed"), ACTIONS)
def test_who_may_not_is_refused_and_recorded(
    name: str, fields: dict[str, Any], typed: dict[str, Any]
) -> None:
    """A viewer gets 403 for preview and change; nothing reaches the cluster."""
    asked = admin()
    pages = browser(picture(), asked, principal=VIEWER)
    for step in ("", "do"):
        answer = pages.submit(f"/c/main/{name}", {**fields, **typed, "step": step})
        assert answer.status_code == 403
    assert not asked.calls
    assert {entry.result for entry in pages.access.entries} == {"refused"}


def test_a_role_for_some_topics_changes_these_alone() -> None:
    """Admin of topic-0001: it may be deleted, not together with another, nor a broker changed."""
    asked = admin()
    pages = browser(picture(), asked, principal=SOME_TOPICS)
    both = {"topic": ["topic-0001", "topic-0002"], "confirm": "delete 2 topics"}
    assert done(pages, "delete-topics", both, {}).status_code == 403
    broker = {"kind": "broker", "name": "0", "config": "a", "value": "1"}
    assert done(pages, "change-config", broker, {}).status_code == 403
    assert done(pages, "create-topic", {"topic": "other"}, {}).status_code == 403
    assert not asked.calls
    done(pages, "delete-topics", DELETE, {"confirm": "topic-0001"})
    assert [call[0] for call in asked.changes()] == ["delete_topics"]


@pytest.mark.parametrize(("name", "fields", "typed"), ACTIONS)
def test_a_change_without_the_token_is_refused(
    name: str, fields: dict[str, Any], typed: dict[str, Any]
) -> None:
    """A form of another site has no token: 403, nothing done."""
    asked = admin()
    answer = browser(picture(), asked).post(f"/c/main/{name}", data={**fields, "step": "do"})
    assert answer.status_code == 403
    assert not asked.calls


@pytest.mark.parametrize("name", ["create-topic", "delete-topics", "truncate", "add-partitions"])
def test_hostile_fields_are_shown_as_text(name: str) -> None:
    """What was typed, and what the cluster says, comes back escaped."""
    asked = RecordingAdmin(**{each: KafkaError(HOSTILE) for each in admin().answers})
    pages = browser(picture(), asked)
    fields = dict.fromkeys(("topic", "partitions", "configs", "total", "offset"), HOSTILE)
    text = pages.submit(f"/c/main/{name}", fields).text
    text += pages.submit("/c/main/create-topic", {"topic": HOSTILE}).text
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert "<img" not in text
