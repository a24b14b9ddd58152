"""Records: the pages' own readers and writers (`data/`) under the API's addresses."""

from __future__ import annotations

from ..data.messages import Messages
from ..data.service import Data
from ..data.sql import Sql
from ..data.work import EVENTS, LINES
from ..data.writing_routes import Writing
from .endpoint import Endpoint

WHERE = {
    "from": "latest, earliest, offset or time.", "offset": "With from=offset.",
    "time": "With from=time.", "direction": "forward or back.", "partitions": "Such as 0,3-5.",
    "condition": "SQL: only records that fulfil it.",
}  # fmt: skip
SHOWN = {
    "count": "At most so many.", "positions": "A cursor of an earlier answer.",
    "key_format": "auto, json, text, hex, avro or protobuf.", "value_format": "The same.",
    "markers": "1: markers of transactions too.",
}  # fmt: skip
TOPIC = "/clusters/{cluster}/topics/{topic}/messages"


def endpoints(data: Data) -> list[Endpoint]:
    messages, writing, sql = Messages(data), Writing(data), Sql(data)
    return [
        Endpoint("GET", f"{TOPIC}/rows", messages.rows,
                 "A page of records: lines of JSON, at last one with the cursors.",
                 {**WHERE, **SHOWN}, media=LINES),
        Endpoint("GET", f"{TOPIC}/record", messages.record, "The bytes of one record's part.",
                 {"partition": "Which one.", "offset": "Where.", "part": "key, value or header.",
                  "header": "The number of the header."}, media="application/octet-stream"),
        Endpoint("GET", f"{TOPIC}/tail", messages.tail, "Records as they come, as events.",
                 {name: WHERE[name] for name in ("partitions", "condition")}, media=EVENTS),
        Endpoint("GET", f"{TOPIC}/download", writing.download, "Many records as a file.",
                 {**WHERE, "format": "jsonl or csv.", "count": "At most so many.",
                  "exact": "1: CSV without apostrophes before formulas."}, media=LINES),
        Endpoint("POST", f"{TOPIC}/download", writing.download, "Chosen records as a file.", {},
                 {"records": "A list of partition:offset.", "format": "jsonl or csv."},
                 media=LINES),
        Endpoint("POST", f"{TOPIC}/produce", writing.produce, "Write records.", {},
                 {"records": "A list of {key, value, headers, partition, timestamp}.",
                  "lines": "Or the same as JSON lines.",
                  "compression": "none, gzip, snappy, lz4 or zstd."}),
        Endpoint("POST", f"{TOPIC}/replay", writing.replay,
                 "Write chosen records again, to another topic.", {},
                 {"records": "A list of partition:offset.", "to": "The topic.",
                  "partition": "key or keep.", "keep_time": "true or false.",
                  "origin": "true: headers say where it came from.",
                  "compression": "none, gzip, snappy, lz4 or zstd."}),
        Endpoint("POST", "/clusters/{cluster}/sql/run", sql.run,
                 "One SELECT over topics: lines of JSON.", {},
                 {"statement": "SELECT …", "from": "A time.", "to": "A time.",
                  "partitions": "Such as 0,3-5.", "isolation": "read_committed or "
                  "read_uncommitted.", "rows": "At most so many."}, media=LINES),
    ]  # fmt: skip
