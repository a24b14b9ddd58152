"""What a declaration says by itself: right ones are taken, wrong ones are named in a sentence."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from ottla.spark.pipelines.declaring import BAD_RECORDS, pipeline
from ottla.spark.pipelines.topics import PipelineError, files, table, topic

EVENTS = topic("events", schema="user string, page string")
VIEWS = topic("views", key="page")


def page_views(events: Any) -> Any:
    return events


def test_declarations_load_no_spark() -> None:
    """A file of pipelines can be read where Spark is not even installed."""
    code = (
        "import sys; from ottla.spark import pipeline, topic, table, files; "
        "pipeline(source=topic('a'), sink=topic('b'), name='c')(lambda x: x); "
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_pipeline_has_the_name_of_its_function() -> None:
    """The name is the function's, in the manner of topics; group and query are called by it."""
    made = pipeline(source=EVENTS, sink=VIEWS)(page_views)
    assert made.name == "page-views"
    assert made.queries == ["views"]
    assert made.group_of("views") == "page-views"
    assert made("a frame") == "a frame"


def test_bad_records_are_a_query_of_their_own() -> None:
    """With bad_records there is one query more, which shows its lag in another group."""
    made = pipeline(source=EVENTS, sink=VIEWS, bad_records=topic("events.bad"))(page_views)
    assert made.queries == ["views", BAD_RECORDS]
    assert made.group_of(BAD_RECORDS) == "page-views-bad"


def test_raw_sources_have_no_bad_records() -> None:
    """Bytes are never bad: no query looks for them."""
    made = pipeline(source=topic("raw"), sink=VIEWS, bad_records=topic("bad"))(page_views)
    assert made.queries == ["views"]


def test_sources_become_arguments_by_name() -> None:
    """A mapping is matched with the arguments by name, whatever their order."""

    def enrich(orders: Any, products: Any) -> Any:
        return (orders, products)

    made = pipeline(sources={"products": table("p"), "orders": EVENTS}, sink=VIEWS)(enrich)
    frames = {name: Frame(name) for name in made.sources}
    assert made(**frames) == (frames["orders"], frames["products"])
    assert made.by_keyword


def test_sources_become_arguments_in_order() -> None:
    """A list is matched in order, and the sources are known by the arguments' names."""

    def join(views: Any, orders: Any) -> Any:
        return views

    made = pipeline(sources=[topic("a"), topic("b")], sink=VIEWS)(join)
    assert list(made.sources) == ["views", "orders"]


class Frame:
    """As much of a DataFrame as a declaration looks at."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.columns = [name]
        self.isStreaming = True


def test_each_sink_gets_its_frame() -> None:
    """A tuple goes by order, a dict by name."""

    def both(events: Any) -> Any:
        return Frame("x"), Frame("y")

    made = pipeline(source=EVENTS, sinks=[topic("a"), topic("b")])(both)
    assert {name: frame.name for name, frame in made.outputs({"events": 0}).items()} == {
        "a": "x",
        "b": "y",
    }


def test_named_sinks_get_theirs_by_name() -> None:
    """The order of a dict does not matter."""

    def both(events: Any) -> Any:
        return {"two": Frame("y"), "one": Frame("x")}

    made = pipeline(source=EVENTS, sinks={"one": topic("a"), "two": files("dir")})(both)
    assert [frame.name for frame in made.outputs({"events": 0}).values()] == ["x", "y"]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "must return a DataFrame (got nothing)"),
        (3, "must return a DataFrame (got a int)"),
        ((Frame("a"), Frame("b")), "must return a DataFrame (got 2 of them)"),
    ],
)
def test_a_wrong_result_is_named(result: Any, said: str) -> None:
    """The error names what the function returned instead of a DataFrame."""

    def wrong(events: Any) -> Any:
        return result

    with pytest.raises(PipelineError, match="pipeline 'wrong'") as raised:
        pipeline(source=EVENTS, sink=VIEWS)(wrong).outputs({"events": 0})
    assert said in str(raised.value)


def test_a_missing_output_is_named() -> None:
    """The error for a dict with other names than the sinks' gives both."""

    def wrong(events: Any) -> Any:
        return {"one": Frame("a")}

    made = pipeline(source=EVENTS, sinks={"one": VIEWS, "two": topic("z")})(wrong)
    with pytest.raises(PipelineError, match=r"its sinks, one, two \(got a dict of one\)"):
        made.outputs({"events": 0})


def no_arguments() -> Any:
    return None


def two_arguments(a: Any, b: Any) -> Any:
    return a


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        (page_views, {"sink": VIEWS}, "give source=… or sources=…"),
        (page_views, {"source": EVENTS, "sources": [EVENTS], "sink": VIEWS}, "and not both"),
        (page_views, {"source": EVENTS}, "give sink=… or sinks=…"),
        (no_arguments, {"source": EVENTS, "sink": VIEWS}, "its function takes no arguments"),
        (two_arguments, {"source": EVENTS, "sink": VIEWS}, "it has 1 source, and its function"),
        (two_arguments, {"sources": {"a": EVENTS, "c": EVENTS}, "sink": VIEWS},
         "its function takes a, b, its sources are a, c"),
        (page_views, {"source": table("t"), "sink": VIEWS}, "a table alone is no stream"),
        (page_views, {"source": EVENTS, "sink": table("t")}, "must be a topic or files"),
        (page_views, {"source": EVENTS, "sink": topic("a", "b")}, "must be one topic"),
        (page_views, {"source": EVENTS, "sink": topic(pattern="a.*")}, "cannot be a pattern"),
        (page_views, {"source": EVENTS, "sinks": {"x": topic(pattern="a")}}, "cannot be a pattern"),
        (page_views, {"source": EVENTS, "sinks": [VIEWS, VIEWS]}, "two sinks are called 'views'"),
        (page_views, {"source": EVENTS, "sinks": {"bad-records": VIEWS}}, "cannot be called"),
        (page_views, {"source": EVENTS, "sinks": {"a/b": VIEWS}}, "cannot be called 'a/b'"),
        (page_views, {"source": EVENTS, "sink": VIEWS, "mode": "upsert"}, "mode must be one of"),
        (page_views, {"source": EVENTS, "sink": files("d"), "mode": "update"}, "only be appended"),
        (page_views, {"source": EVENTS, "sink": VIEWS, "name": "a b"}, "a name has letters"),
        (page_views, {"source": EVENTS, "sink": VIEWS, "options": {"x": 1}}, "of the session"),
        (page_views, {"source": topic("a", format="json"), "sink": VIEWS}, "needs a schema"),
        (page_views, {"source": EVENTS, "sink": VIEWS, "bad_records": files("d")},
         "bad_records must be a topic"),
        (page_views, {"source": topic("a", include={"key": "k", "offset": "k"}), "sink": VIEWS},
         "two columns 'k'"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_named(function: Any, arguments: dict[str, Any], said: str) -> None:
    """What cannot be is said when the file is read, with the pipeline's name."""
    with pytest.raises(PipelineError) as raised:
        pipeline(**arguments)(function)
    assert said in str(raised.value)
    assert str(raised.value).startswith("pipeline '")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: topic(), "names of topics, or a pattern"),
        (lambda: topic("a", pattern="b"), "not both"),
        (lambda: topic("a", format="avro"), '"json" or "raw"'),  # type: ignore[arg-type]
        (lambda: topic("a", format="raw", schema="x int"), "its values are bytes"),
        (lambda: topic("a", format="raw", key="k"), "leave key="),
        (lambda: topic("a", include=("keys",)), "knows no column 'keys'"),
        (lambda: topic("a", tombstones="drop"), '"bad", "skip" or "keep"'),  # type: ignore[arg-type]
        (lambda: topic("a", partitions=0), "must be 1 or more"),
        (lambda: table(""), "the name of a topic"),
        (lambda: table("a", refresh="hourly"), '"batch" or "start"'),  # type: ignore[arg-type]
        (lambda: files("d", mode="ignore"), '"error", "append" or "overwrite"'),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_topic_is_named(make: Any, said: str) -> None:
    """Words that a topic, a table or files do not know are refused with those they do."""
    with pytest.raises(PipelineError) as raised:
        make()
    assert said in str(raised.value)


def test_a_key_column_may_have_a_type() -> None:
    """`key="product bigint"` names the column and what it is cast to; text is the default."""
    assert (table("p", key="product bigint").key, table("p", key="product bigint").key_type) == (
        "product",
        "bigint",
    )
    assert table("p", key="product").key_type == "string"


def test_options_become_text() -> None:
    """Spark's options are text; true is small."""
    assert topic("a", options={"failOnDataLoss": False, "minPartitions": 4}).options == {
        "failOnDataLoss": "false",
        "minPartitions": "4",
    }
