"""The parts of a pipeline's run that need no Spark: bounds, readings, checkpoints, files, words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ottla.client.structs import OffsetAndTimestamp, TopicPartition
from ottla.spark.pipelines.bounds import milliseconds, parse_bound, start_offsets, stretch
from ottla.spark.pipelines.checkpoints import Home, homes
from ottla.spark.pipelines.loading import load, load_all, parted
from ottla.spark.pipelines.problems import first_line, root_cause, sentence
from ottla.spark.pipelines.progress import lag_of, line, reading_of
from ottla.spark.pipelines.topics import PipelineError, topic
from ottla.spark.sessions import MEANINGLESS, chosen

# Bounds


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", "earliest"),
        (" latest ", "latest"),
        ("2026-11-15T16:00:00", datetime(2026, 11, 15, 16)),
        ("2026-11-15T16:00:00Z", datetime(2026, 11, 15, 16, tzinfo=UTC)),
        ("2026-11-15", datetime(2026, 11, 15)),
        ("1763222400000", 1763222400000),
        ('{"a": {"0": 5}}', {"a": {"0": 5}}),
    ],
)  # fmt: skip
def test_a_bound_is_a_word_a_time_or_offsets(text: str, bound: Any) -> None:
    """What a person writes after --from and --until is understood."""
    assert parse_bound(text) == bound


@pytest.mark.parametrize("text", ["soon", "12", '{"a": 5}', '{"a": {"x": 1}}', "{", ""])
def test_another_bound_is_refused(text: str) -> None:
    """What is none of them is refused with an example."""
    with pytest.raises(PipelineError, match="such as"):
        parse_bound(text)


def test_a_time_without_zone_is_utc() -> None:
    """The session is in UTC, and so are times that do not say."""
    assert milliseconds(datetime(2026, 11, 15, 16)) == milliseconds(
        datetime(2026, 11, 15, 17, tzinfo=timezone(timedelta(hours=1)))
    )


class Log:
    """A consumer that knows one topic: partition → (first, end, offset at the time asked for)."""

    def __init__(self, places: dict[int, tuple[int, int, int | None]]) -> None:
        self.places = places

    def partitions_for_topic(self, name: str) -> set[int]:
        return set(self.places) if name == "t" else set()

    def topics(self) -> set[str]:
        return {"t", "other"}

    def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.places[place.partition][0] for place in places}

    def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.places[place.partition][1] for place in places}

    def offsets_for_times(
        self, times: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        found = {place: self.places[place.partition][2] for place in times}
        return {
            place: None if offset is None else OffsetAndTimestamp(offset, 0, 0)
            for place, offset in found.items()
        }


LOG: Any = Log({0: (2, 10, 6), 1: (0, 4, None)})
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("start", "until", "begin", "end"),
    [
        ("earliest", "latest", None, {FIRST: 10, SECOND: 4}),
        ("earliest", 1000, None, {FIRST: 6, SECOND: 4}),
        ("latest", "latest", {FIRST: 10, SECOND: 4}, {FIRST: 10, SECOND: 4}),
        (1000, "latest", {FIRST: 6, SECOND: 4}, {FIRST: 10, SECOND: 4}),
        ({"t": {"0": 7}}, "latest", {FIRST: 7, SECOND: 0}, {FIRST: 10, SECOND: 4}),
        ("earliest", {"t": {"0": 5}}, None, {FIRST: 5, SECOND: 4}),
        ({"t": {"0": 0}}, {"t": {"0": 1}}, {FIRST: 2, SECOND: 0}, {FIRST: 2, SECOND: 4}),
        ({"t": {"0": 8}}, {"t": {"0": 5}}, {FIRST: 8, SECOND: 0}, {FIRST: 8, SECOND: 4}),
    ],
)  # fmt: skip
def test_a_stretch_has_an_end_that_stands_still(
    start: Any, until: Any, begin: Any, end: Any
) -> None:
    """Words and times become offsets once; the end is never before the beginning, nor before
    what retention has left."""
    assert stretch(LOG, topic("t"), start, until) == (begin, end)


def test_a_start_for_a_partition_that_is_not_there_is_refused() -> None:
    """A wrong partition is an error, and other topics' offsets are not this source's business."""
    with pytest.raises(PipelineError, match="'t' has no partition 7"):
        start_offsets(LOG, topic("t"), {"t": {"7": 1}})
    assert start_offsets(LOG, topic("t"), {"u": {"7": 1}}) == {FIRST: 2, SECOND: 0}


def test_a_missing_topic_is_reported() -> None:
    """By name, or by the pattern that nothing matches."""
    with pytest.raises(PipelineError, match="there is no topic 'no'"):
        stretch(LOG, topic("no"), "earliest", "latest")
    with pytest.raises(PipelineError, match=r"no topic matches 'x\.\*'"):
        stretch(LOG, topic(pattern="x.*"), "earliest", "latest")


# Readings

PROGRESS: dict[str, Any] = {
    "batchId": 7,
    "timestamp": "2026-11-15T16:00:00.000Z",
    "numInputRows": 500,
    "batchDuration": 250,
    "durationMs": {"triggerExecution": 250},
    "eventTime": {"watermark": "2026-11-15T15:59:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 10, "memoryUsedBytes": 2048, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 5, "memoryUsedBytes": 1024, "numRowsDroppedByWatermark": 1},
    ],
    "sources": [
        {
            "endOffset": '{"t": {"0": 5, "1": 4}}',
            "latestOffset": '{"t": {"0": 7, "1": 4}, "commitGroup": "g"}',
        },
        {"endOffset": '{"logOffset": 3}', "latestOffset": "null"},
    ],
}


def test_a_reading_sums_up_a_batch() -> None:
    """Rows/s, lag over partitions, state and rows that came too late over all operators."""
    reading = reading_of("p", "q", PROGRESS)
    assert (reading.rows, reading.rows_per_s, reading.lag) == (500, 2000.0, 2)
    assert (reading.state_rows, reading.state_bytes, reading.late_rows) == (15, 3072, 3)
    assert reading.watermark == "2026-11-15T15:59:00.000Z"
    assert reading.watermark_at == datetime(2026, 11, 15, 15, 59, tzinfo=UTC)


def test_what_a_query_does_not_have_is_left_out() -> None:
    """A stateless query over files has no watermark, state or lag."""
    reading = reading_of(
        "p",
        "q",
        {"batchId": 0, "sources": [{"endOffset": '{"logOffset": 1}', "latestOffset": None}]},
    )
    assert (reading.lag, reading.watermark, reading.state_rows) == (None, None, None)
    assert line(reading, "p", 0) == "p  batch 0   0 rows/s   0.00 s a batch"


def test_a_watermark_of_1970_is_none() -> None:
    """Spark says 1970 until it has seen a row."""
    progress = {"batchId": 0, "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}
    assert reading_of("p", "q", progress).watermark is None


def test_a_line_tells_of_late_and_bad_rows() -> None:
    """Nothing is dropped silently: the totals stand at the end of the line."""
    text = line(reading_of("p", "q", PROGRESS), "p", 1003, 2)
    assert text == (
        "p  batch 7   2,000 rows/s   lag 2   0.25 s a batch   watermark 2026-11-15 15:59:00   "
        "state 15 rows, 3 KiB   1,003 too late   2 bad"
    )


@pytest.mark.parametrize("metrics", [{"bad_rows": {"bad_rows": 3}}, {"bad_rows": [3]}])
def test_bad_rows_are_counted(metrics: dict[str, Any]) -> None:
    """The query of bad records says how many it found, in either shape Spark gives a row."""
    assert reading_of("p", "q", {"batchId": 0, "observedMetrics": metrics}).bad_rows == 3


def test_lag_is_unknown_without_topics() -> None:
    """No topic, no lag; which is not lag 0."""
    assert lag_of([{"endOffset": "3", "latestOffset": "5"}]) is None


@pytest.mark.parametrize(
    ("seen", "last", "none_between"),
    [
        ((4, "1", True), (5, "2", True), True),
        ((4, "1", True), (5, "2", False), True),
        ((5, "1", False), (5, "2", True), True),
        ((5, "1", False), (6, "3", False), False),
        ((4, "1", True), (6, "3", True), False),
        ((-1, "", False), (0, "1", True), False),
    ],
)
def test_no_batch_is_passed_over(seen: Any, last: Any, none_between: bool) -> None:
    """The last progress alone is enough only if no batch was done since the one that was seen."""
    from ottla.spark.pipelines.running import nothing_between

    assert nothing_between(seen, last) is none_between


# Checkpoints


def test_a_checkpoint_has_one_run_at_a_time(tmp_path: Path) -> None:
    """A second run is refused while the first holds the lock, also from another process."""
    home = Home(str(tmp_path), "p")
    home.take()
    home.keep_run(groups={"s": "g"})
    assert home.running()
    with pytest.raises(PipelineError, match=rf"runs already .* \(process {os.getpid()}\)"):
        Home(str(tmp_path), "p").take()
    code = """if True:
        import sys
        from ottla.spark.pipelines.checkpoints import Home
        print(Home(*sys.argv[1:]).running())
    """
    asked = [sys.executable, "-c", code, str(tmp_path), "p"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "True\n"
    home.release()
    assert not Home(str(tmp_path), "p").running()
    Home(str(tmp_path), "p").take()


def test_where_a_run_began_is_kept(tmp_path: Path) -> None:
    """A later run of the same checkpoint begins its queries at the same offsets."""
    home = Home(str(tmp_path), "p")
    home.take()
    assert home.starts() is None
    home.keep_starts({"events": {FIRST: 3, SECOND: 0}, "all": None})
    assert Home(str(tmp_path), "p").starts() == {"events": {FIRST: 3, SECOND: 0}, "all": None}


def test_the_last_batch_is_read_from_sparks_files(tmp_path: Path) -> None:
    """The newest commit that is whole counts; offsets that are not committed do not."""
    home = Home(str(tmp_path), "p")
    home.take()
    home.keep_run(groups={})
    assert home.stand("s") is None
    for part in ("commits", "offsets"):
        (tmp_path / "p" / "s" / part).mkdir(parents=True)
        for batch in (9, 10, *((11,) if part == "offsets" else ())):
            text = 'v1\n{"batchWatermarkMs": 5000}\n{"t":{"0":1}}'
            (tmp_path / "p" / "s" / part / str(batch)).write_text(text)
    (tmp_path / "p" / "s" / "commits" / ".10.crc").write_text("x")
    stand = home.stand("s")
    assert stand is not None
    assert (stand.batch_id, stand.watermark_ms) == (10, 5000)
    assert [each.name for each in homes(str(tmp_path))] == ["p"]


def test_a_remote_checkpoint_has_only_sparks_files() -> None:
    """Nothing of ours is written beside checkpoints on another file system."""
    home = Home("hdfs://name/checkpoints/", "p")
    home.take()
    home.keep_run(x=1)
    home.keep_starts({})
    assert home.of("s") == "hdfs://name/checkpoints/p/s"
    assert (home.starts(), home.run()) == (None, {})


# Files

FILE = """
from ottla.spark import pipeline, topic

@pipeline(source=topic("a"), sink=topic("b"))
def first_one(x): return x

@pipeline(source=topic("a"), sink=topic("b"), name="two")
def second(x): return x
"""


def test_a_file_has_its_pipelines_in_order(tmp_path: Path) -> None:
    """All of them, or the one called NAME, by the pipeline's or the function's name."""
    file = tmp_path / "many.py"
    file.write_text(FILE)
    assert [each.name for each in load(str(file))] == ["first-one", "two"]
    for name in ("first-one", "first_one"):
        assert [each.name for each in load(f"{file}:{name}")] == ["first-one"]
    assert [each.name for each in load_all((f"{file}:two", str(file)))] == ["two", "first-one"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "has no pipeline"),
        ("x = 1\ny = z\n", ":2: NameError: name 'z' is not defined"),
        ("def f(:\n", ":1: SyntaxError"),
        ("import nowhere_to_be_found", ":1: No module named 'nowhere_to_be_found'"),
        ("from ottla.spark import topic\ntopic()", "names of topics, or a pattern"),
        (FILE + FILE.replace("first_one", "third").replace("def second", "def fourth"),
         "two pipelines are called 'two'"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_reported_with_its_line(
    text: str, said: str, tmp_path: Path
) -> None:
    """An error in the file is one sentence, with the line where it happened."""
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(PipelineError) as raised:
        load(str(file))
    assert said in str(raised.value)
    assert "broken.py" in str(raised.value)


def test_a_name_that_is_not_in_the_file_is_reported(tmp_path: Path) -> None:
    """With those that are."""
    file = tmp_path / "many.py"
    file.write_text(FILE)
    with pytest.raises(PipelineError, match=r"no pipeline 'three' \(there are first-one, two\)"):
        load(f"{file}:three")
    with pytest.raises(PipelineError, match="there is no file"):
        load(str(tmp_path / "none.py"))


def test_a_colon_may_be_part_of_a_files_name(tmp_path: Path) -> None:
    """What exists under that name is the file."""
    (tmp_path / "a:b.py").write_text("")
    assert parted(str(tmp_path / "a:b.py")) == (tmp_path / "a:b.py", None)
    assert parted("a.py:b") == (Path("a.py"), "b")


# Words


class SparkError(Exception):
    """As much of Spark's errors as is looked at."""

    def __init__(self, text: str, condition: str = "", **parameters: str) -> None:
        super().__init__(text)
        self.condition = condition
        self.parameters = parameters

    def getCondition(self) -> str:
        return self.condition

    def getMessageParameters(self) -> dict[str, str]:
        return self.parameters


def message_of(error: SparkError, mode: str = "append") -> str:
    from ottla.spark.pipelines.declaring import Pipeline

    made: Any = Pipeline(name="p", function=print, sources={}, sinks={}, mode=mode)  # type: ignore[arg-type]
    return sentence(error, made)  # type: ignore[arg-type]


def test_an_unknown_column_is_reported() -> None:
    """With the columns that there are."""
    error = SparkError(
        "…", "UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName="`usr`", proposal="`user`, `at`"
    )
    assert message_of(error) == "pipeline 'p': there is no column 'usr' (there are user, at)"


def test_a_missing_watermark_is_reported() -> None:
    """With what to write."""
    error = SparkError(
        "…",
        "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION",
        operation="streaming aggregations without watermark",
    )
    assert "an aggregation needs a watermark in mode 'append': events.withWatermark(" in message_of(
        error
    )


def test_the_cause_of_a_failed_query_is_found() -> None:
    """A query that ends says so in a hundred lines; the reason is the worker's last word."""
    text = (
        "[STREAM_FAILED] Query [id = x] terminated with exception: Job aborted\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n'
        "ValueError: a reason.\n"
        "\tat org.apache.spark.api.python.BasePythonRunner\n"
    )
    assert root_cause(text) == "a reason"
    advised = text.replace("a reason.\n", "no broker answers\nTry: start it\n")
    assert root_cause(advised) == "no broker answers\nTry: start it"
    ours = advised.replace("ValueError:", "ottla.spark.broker_wait.BrokerAway:")
    assert root_cause(ours) == "no broker answers\nTry: start it"
    assert root_cause("[X_Y.Z] Something is so. SQLSTATE: 42P01\nmore") == "Something is so"
    assert first_line("") == "an error without words"


def test_a_record_that_stops_the_run_is_reported() -> None:
    """With its place, and what to do; not so where a plan merely contains the words."""
    text = (
        "[STREAM_FAILED] …: pipeline 'p' has no bad_records, and a record does not parse: topic "
        "t, partition 1, offset 7: malformed JSON SQLSTATE: P0001\n\tat org…"
    )
    assert message_of(SparkError(text)) == (
        "pipeline 'p' has no bad_records, and a record does not parse: topic t, partition 1, "
        "offset 7: malformed JSON. Give it bad_records=topic(…), and such records go there"
    )
    plan = "pipeline 'p' has no bad_records, and a record does not parse: topic , topic#1"
    assert message_of(SparkError(f"[ABC] No.\n{plan}")) == "pipeline 'p': No"


# Sessions


def test_a_local_session_stays_on_loopback() -> None:
    """A local master binds to loopback and has few shuffle partitions; a cluster's does not."""
    local = chosen("local[2]", "n", {"spark.ui.enabled": "true"})
    assert local["spark.driver.host"] == "127.0.0.1"
    assert local["spark.ui.enabled"] == "true"
    assert local["spark.sql.session.timeZone"] == "UTC"
    cluster = chosen("spark://h:7077", "n", {})
    assert "spark.driver.host" not in cluster
    assert "spark.sql.shuffle.partitions" not in cluster


@pytest.mark.parametrize(
    ("text", "meaningless"),
    [
        ("WARNING: Using incubator modules: jdk.incubator.vector", True),
        ("Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties", True),
        ("java.lang.OutOfMemoryError: Java heap space", False),
        ("hello from a UDF", False),
    ],
)
def test_only_what_means_nothing_is_kept_back(text: str, meaningless: bool) -> None:
    """A newcomer sees no warning about modules; what a pipeline prints comes through."""
    assert bool(MEANINGLESS.search(text)) == meaningless


def test_readings_go_to_json() -> None:
    """Every field of a reading is plain data."""
    assert json.loads(json.dumps(reading_of("p", "q", PROGRESS).as_object()))["lag"] == 2
