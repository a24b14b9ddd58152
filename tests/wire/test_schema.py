"""Declarations: what the metaclass makes of them, and what the compiled text promises."""

from __future__ import annotations

import subprocess
import sys
import traceback

import pytest

from ottla.wire import runtime, schema
from ottla.wire.__main__ import main
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from ottla.wire.api.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.malformed import MalformedMessage, UnsupportedVersion, UnwritableMessage
from ottla.wire.out import FileRange, Out
from ottla.wire.schema import reader, writer


def test_a_declaration_is_a_slotted_class() -> None:
    """Keyword arguments, the declared defaults, misspelt fields are errors."""
    request = FetchRequest(max_wait_ms=500)
    assert (request.max_wait_ms, request.max_bytes, request.replica_id) == (500, 0x7FFFFFFF, -1)
    with pytest.raises(AttributeError):
        request.max_wait = 5  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        FetchRequest(max_wait=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        FetchRequest(5)  # type: ignore[misc]


def test_defaults_are_not_shared() -> None:
    """Each object has its own lists and structs."""
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(FetchTopic())
    one.replica_state.replica_id = 7
    assert other.topics == []
    assert other.replica_state.replica_id == -1


def test_defaults_that_are_read_are_not_shared() -> None:
    """The same holds for fields that a version does not carry."""
    data = bytes(writer(FetchRequest, 4)(FetchRequest(), Out()))
    one, _ = reader(FetchRequest, 4)(data)
    other, _ = reader(FetchRequest, 4)(data)
    one.forgotten_topics_data.append(None)  # type: ignore[arg-type]
    one.replica_state.replica_id = 7
    assert other.forgotten_topics_data == []
    assert other.replica_state.replica_id == -1


def test_equality_and_text() -> None:
    """Equal by value and class, unhashable, and shown with every field."""
    assert FetchPartition(partition=1) == FetchPartition(partition=1)
    assert FetchPartition(partition=1) != FetchPartition(partition=2)
    assert FetchPartition() != FetchTopic()
    assert "partition=1, current_leader_epoch=-1" in repr(FetchPartition(partition=1))
    with pytest.raises(TypeError):
        hash(FetchPartition())


def test_null_array_is_not_an_empty_one() -> None:
    """None asks for all topics, [] for none; both are kept apart by constructor and wire."""
    assert MetadataRequest().topics == []
    for topics in (None, []):
        data = bytes(writer(MetadataRequest, 12)(MetadataRequest(topics=topics), Out()))
        assert reader(MetadataRequest, 12)(data)[0].topics == topics


@pytest.mark.parametrize("cursor", [None, Cursor(topic_name="a", partition_index=3)])
def test_a_struct_may_be_null(cursor: Cursor | None) -> None:
    """A byte in front says whether it is there."""
    request = DescribeTopicPartitionsRequest(cursor=cursor)
    data = bytes(writer(DescribeTopicPartitionsRequest, 0)(request, Out()))
    assert reader(DescribeTopicPartitionsRequest, 0)(data)[0].cursor == cursor


@pytest.mark.parametrize("version", [9, 13])
def test_records_are_a_view_of_the_frame(version: int) -> None:
    """The codec copies no payload: what is read is a slice of what was received."""
    partition = PartitionProduceData(index=1, records=b"x" * 1000)
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[partition])])
    frame = bytearray(writer(ProduceRequest, version)(request, Out()))
    read, _ = reader(ProduceRequest, version)(memoryview(frame))
    records = read.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert records == b"x" * 1000


@pytest.mark.parametrize("version", [4, 12, 18])
def test_records_from_files_are_only_noted(version: int) -> None:
    """Bytes and ranges of files may be mixed; the sizes on the wire count both."""
    parts = [b"abc", FileRange("file", 7, 1000), memoryview(b"de"), FileRange("file", 9, 1)]
    whole = [b"abc" + b"f" * 1000 + b"de" + b"g"]
    written = []
    for records in (parts, whole):
        partition = PartitionData(records=records)
        topic = FetchableTopicResponse(partitions=[partition])
        written.append(writer(FetchResponse, version)(FetchResponse(responses=[topic]), Out()))
    pieces, position = [], 0
    for at, blob in written[0].blobs:
        pieces += [written[0][position:at], b"f" * 1000 if blob.size == 1000 else b"g"]
        position = at
    assert b"".join([*pieces, written[0][position:]]) == written[1]


@pytest.mark.parametrize("version", [-1, 3, 19])
def test_versions_that_do_not_exist(version: int) -> None:
    """Neither reader nor writer is made for them, nor for a part of a message."""
    with pytest.raises(UnsupportedVersion, match="4 to 18"):
        reader(FetchRequest, version)
    with pytest.raises(UnsupportedVersion, match="4 to 18"):
        writer(FetchRequest, version)
    with pytest.raises(UnsupportedVersion, match="part of other messages"):
        reader(FetchPartition, 12)


@pytest.mark.parametrize(
    "request_",
    [
        FetchRequest(max_wait_ms=2**31),
        FetchRequest(topics=None),  # type: ignore[arg-type]
        FetchRequest(rack_id=7),  # type: ignore[arg-type]
        FetchRequest(rack_id="x" * 32768),
        FetchRequest(rack_id="\ud800"),
        FetchRequest(topics=[7]),  # type: ignore[list-item]
    ],
    ids=["too large", "null", "wrong type", "long string", "surrogate", "wrong element"],
)
@pytest.mark.parametrize("version", [11, 12])
def test_what_cannot_be_written_says_so(request_: FetchRequest, version: int) -> None:
    """Our own mistakes are named with message and version."""
    with pytest.raises(UnwritableMessage, match=f"FetchRequest version {version}"):
        writer(FetchRequest, version)(request_, Out())


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("count", [2**31 - 1, 2**28, 1000])
def test_a_huge_count_is_refused_before_anything_is_made(version: int, count: int) -> None:
    """An array that cannot fit into the bytes left is refused by its count alone."""
    out = bytearray(writer(FetchRequest, version)(FetchRequest(), Out()))
    if version == 11:
        out[25:29] = count.to_bytes(4, "big")
    else:
        compact = bytearray()
        number = count + 1
        while number > 127:
            compact.append(number & 127 | 128)
            number >>= 7
        out[25:26] = compact + bytes([number])
    with pytest.raises(MalformedMessage, match=f"topics: {count} elements cannot fit"):
        reader(FetchRequest, version)(bytes(out))


def test_unknown_tagged_fields_are_skipped() -> None:
    """A newer client may send tags that we do not know; what we know is read all the same."""
    data = bytes(writer(FetchRequest, 12)(FetchRequest(cluster_id="abc"), Out()))
    assert data.endswith(b"\x01\x00\x04\x04abc")
    more = data[: -len(b"\x01\x00\x04\x04abc")] + b"\x03\x00\x04\x04abc\x07\x02xy\x80\x01\x00"
    assert reader(FetchRequest, 12)(more) == (FetchRequest(cluster_id="abc"), len(more))


def test_a_tagged_field_must_be_as_long_as_it_says() -> None:
    """A size that disagrees with the value inside is refused."""
    data = bytes(writer(FetchRequest, 12)(FetchRequest(cluster_id="abc"), Out()))
    wrong = data.replace(b"\x01\x00\x04\x04abc", b"\x01\x00\x05\x04abcd")
    with pytest.raises(MalformedMessage, match="tagged field of 4 bytes says it has 5"):
        reader(FetchRequest, 12)(wrong)


def test_the_compiled_text_shows_in_tracebacks() -> None:
    """Generated code is not a black box: linecache knows its lines."""
    with pytest.raises(UnwritableMessage) as caught:
        writer(FetchRequest, 12)(FetchRequest(topics=[7]), Out())  # type: ignore[list-item]
    assert caught.value.__cause__ is not None
    shown = "".join(traceback.format_tb(caught.value.__cause__.__traceback__))
    assert "topic = topics_item.topic.encode()" in shown


def test_show_prints_the_compiled_text(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m ottla.wire show fetch 12` prints both halves; mistakes get a hint."""
    assert main(["show", "fetch", "12"]) == 0
    shown = capsys.readouterr().out
    assert '"""Read FetchRequest, version 12."""' in shown
    assert '"""Write FetchResponse, version 12."""' in shown
    assert main(["show", "list_offsets", "7", "--part", "request"]) == 0
    assert "ListOffsetsResponse" not in capsys.readouterr().out
    assert main(["show", "nothing", "1"]) == 1
    assert "Try: python -m ottla.wire list" in capsys.readouterr().err
    assert main(["show", "fetch", "99"]) == 1
    assert "versions 4 to 18, not 99" in capsys.readouterr().err
    assert main(["list"]) == 0
    assert "Fetch" in capsys.readouterr().out


def test_messages_are_imported_only_when_asked_for() -> None:
    """Starting up must not pay for forty modules that a session never uses."""
    code = (
        "import sys; from ottla.wire.apis import API; import ottla.wire.header;"
        "assert not [m for m in sys.modules if m.startswith('ottla.wire.api.')];"
        "API[1].request; assert 'ottla.wire.api.fetch' in sys.modules;"
        "assert 'ottla.wire.api.produce' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("version", [3, 4])
def test_all_arrays_together_have_a_limit(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements are cheap on the wire and dear in memory, so their number is bounded as a whole."""
    monkeypatch.setattr(runtime, "ITEMS_MAX", 100)
    monkeypatch.setattr(schema, "READERS", {})

    def request(resources: int, names: int) -> DescribeConfigsRequest:
        keys = [""] * names
        made = [DescribeConfigsResource(configuration_keys=keys) for _ in range(resources)]
        return DescribeConfigsRequest(resources=made)

    for resources, names, fits in ((100, 0, True), (10, 9, True), (10, 10, False), (101, 0, False)):
        data = bytes(writer(DescribeConfigsRequest, version)(request(resources, names), Out()))
        if fits:
            reader(DescribeConfigsRequest, version)(data)
        else:
            with pytest.raises(MalformedMessage, match="more than 100 elements"):
                reader(DescribeConfigsRequest, version)(data)
