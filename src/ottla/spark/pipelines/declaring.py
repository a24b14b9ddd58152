"""A pipeline: sources, a function from DataFrames to DataFrames, sinks.

The declaration is pure, so that a file of pipelines can be listed without Spark. What is wrong with
it by itself (a name twice, a table as a sink, a function with other arguments) is an error when it
is made; what needs Spark or the broker is found by `checking`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .topics import Files, PipelineError, Sink, Source, Table, Topic, secured, texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .bounds import Bound
    from .running import Run

Mode = Literal["append", "update", "complete"]
MODES = ("append", "update", "complete")
BAD_RECORDS = "bad-records"
# Names become directories, consumer groups and parts of transactional ids.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, eq=False)
class Pipeline:
    """What `@pipeline` makes of a function. Calling it calls the function."""

    name: str
    function: Callable[..., Any]
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    bad_records: Topic | None = None
    mode: Mode = "append"
    trigger: str | None = None
    group: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    by_keyword: bool = False
    # How the function's result is taken: "one", "dict" or "tuple".
    returns: Literal["one", "dict", "tuple"] = "one"
    file: str = ""

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)

    def start(
        self,
        spark: SparkSession,
        *,
        bootstrap_servers: str,
        checkpoint: str | Path,
        start: Bound = "earliest",
        catch_up: bool = False,
        trigger: str | None = None,
        client: Mapping[str, str] | None = None,
    ) -> Run:
        """Begin to stream; with `catch_up` until what is there now is done.

        The checkpoint is in `checkpoint`/NAME: where there is one, the run goes on from it and
        `start` has no meaning. `client` are Kafka's properties of TLS and of a login.
        """
        from .running import start_stream

        return start_stream(
            with_client(self, client or {}),
            spark,
            bootstrap_servers=bootstrap_servers,
            checkpoint=str(checkpoint),
            start=start,
            catch_up=catch_up,
            trigger=trigger,
        )

    def past(
        self,
        spark: SparkSession,
        *,
        bootstrap_servers: str,
        start: Bound = "earliest",
        until: Bound = "latest",
        client: Mapping[str, str] | None = None,
    ) -> dict[str, int]:
        """Run over what is stored, as a batch; gives the rows written to each sink.

        `client` are Kafka's properties of TLS and of a login.
        """
        from .past import run_past

        return run_past(
            with_client(self, client or {}),
            spark,
            bootstrap_servers=bootstrap_servers,
            start=start,
            until=until,
        )

    def outputs(self, frames: Mapping[str, Any]) -> dict[str, Any]:
        """The function's DataFrames, by sink."""
        try:
            made = self(**frames) if self.by_keyword else self(*frames.values())
        except Exception as problem:
            # Spark's own errors are put in words by problems.py; these are of Python.
            if type(problem).__module__.startswith("pyspark."):
                raise
            what = "" if isinstance(problem, PipelineError) else f"{type(problem).__name__}: "
            raise PipelineError(f"pipeline {self.name!r}: {what}{problem}") from problem
        names = list(self.sinks)
        if self.returns == "dict":
            if not isinstance(made, Mapping) or set(made) != set(names):
                raise PipelineError(
                    f"pipeline {self.name!r} must return a dict of DataFrames with the names of "
                    f"its sinks, {listed(names)} (got {described(made)})"
                )
            return {name: self._frame(made[name]) for name in names}
        if self.returns == "tuple":
            if not isinstance(made, tuple | list) or len(made) != len(names):
                raise PipelineError(
                    f"pipeline {self.name!r} must return {len(names)} DataFrames, one for each "
                    f"of {listed(names)} (got {described(made)})"
                )
            return {name: self._frame(each) for name, each in zip(names, made, strict=True)}
        return {names[0]: self._frame(made)}

    def _frame(self, made: Any) -> Any:
        if not (hasattr(made, "isStreaming") and hasattr(made, "columns")):
            raise PipelineError(
                f"pipeline {self.name!r} must return a DataFrame (got {described(made)})"
            )
        return made

    @property
    def parsed(self) -> dict[str, Topic]:
        """The sources whose records may be bad."""
        return {
            name: source
            for name, source in self.sources.items()
            if isinstance(source, Topic) and source.parsed
        }

    @property
    def queries(self) -> list[str]:
        """The names of its streaming queries: one for each sink, one for bad records."""
        has_bad = self.bad_records is not None and self.parsed
        return [*self.sinks, BAD_RECORDS] if has_bad else list(self.sinks)

    def group_of(self, query: str) -> str:
        """The consumer group that shows how far this query has read."""
        if query == BAD_RECORDS:
            return f"{self.group}-bad"
        return self.group if len(self.sinks) == 1 else f"{self.group}-{query}"


def with_client(made: Pipeline, client: Mapping[str, str]) -> Pipeline:
    """The pipeline with these properties of TLS and of a login for all its topics."""
    if not client:
        return made
    return replace(
        made,
        sources={name: secured(each, client) for name, each in made.sources.items()},
        sinks={name: secured(each, client) for name, each in made.sinks.items()},
        bad_records=made.bad_records and secured(made.bad_records, client),
    )


def pipeline(
    *,
    source: Source | None = None,
    sources: Mapping[str, Source] | Iterable[Source] | None = None,
    sink: Sink | None = None,
    sinks: Mapping[str, Sink] | Iterable[Sink] | None = None,
    bad_records: Topic | None = None,
    name: str | None = None,
    mode: Mode = "append",
    trigger: str | None = None,
    group: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Callable[[Callable[..., Any]], Pipeline]:
    """Make a pipeline of a function that takes and returns DataFrames.

    `source` is the function's one argument; `sources` are its arguments in order, or by name if
    it is a mapping. `sink` takes the DataFrame it returns; `sinks` those of the tuple, or of the
    dict. Records of JSON sources that do not parse go to `bad_records`; without it the first of
    them stops the run.
    """

    def decorate(function: Callable[..., Any]) -> Pipeline:
        chosen = name or function.__name__.replace("_", "-")
        if not NAME.fullmatch(chosen):
            raise PipelineError(
                f"pipeline {chosen!r}: a name has letters, digits, dots, dashes and underscores"
            )
        try:
            named = _sources(function, source, sources)
            targets = _sinks(sink, sinks)
            _check_places(named, targets, bad_records, mode, options)
        except PipelineError as problem:
            raise PipelineError(f"pipeline {chosen!r}: {problem}") from None
        return Pipeline(
            name=chosen,
            function=function,
            sources=named,
            sinks=targets,
            bad_records=bad_records,
            mode=mode,
            trigger=trigger,
            group=group or chosen,
            options=texts(options),
            by_keyword=isinstance(sources, Mapping),
            returns="one" if sink else "dict" if isinstance(sinks, Mapping) else "tuple",
            file=inspect.getsourcefile(function) or "",
        )

    return decorate


def _sources(
    function: Callable[..., Any],
    source: Source | None,
    sources: Mapping[str, Source] | Iterable[Source] | None,
) -> dict[str, Source]:
    """The sources by the name of the argument that each becomes."""
    if (source is None) == (sources is None):
        raise PipelineError("give source=… or sources=…, and not both")
    parameters = [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if isinstance(sources, Mapping):
        if set(parameters) != set(sources):
            raise PipelineError(
                f"its function takes {listed(parameters)}, its sources are {listed(sources)}"
            )
        return dict(sources)
    given = [source] if source is not None else list(sources or ())
    if len(given) != len(parameters) or not given:
        raise PipelineError(
            f"it has {counted(len(given), 'source')}, "
            f"and its function takes {counted(len(parameters), 'argument')}"
        )
    return dict(zip(parameters, given, strict=True))


def _sinks(sink: Sink | None, sinks: Mapping[str, Sink] | Iterable[Sink] | None) -> dict[str, Sink]:
    """The sinks by name: the keys of a mapping, else where they write to."""
    if (sink is None) == (sinks is None):
        raise PipelineError("give sink=… or sinks=…, and not both")
    if isinstance(sinks, Mapping):
        named = dict(sinks)
    else:
        given = [sink] if sink is not None else list(sinks or ())
        named = {}
        for each in given:
            label = getattr(each, "label", "")
            if label in named:
                raise PipelineError(f"two sinks are called {label!r}; name them: sinks={{…}}")
            named[label] = each
    if not named:
        raise PipelineError("it has no sink")
    return named


def _check_places(
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
    bad_records: Topic | None,
    mode: str,
    options: Mapping[str, object] | None,
) -> None:
    """Is everything where it can be?"""
    for name, source in sources.items():
        if not isinstance(source, Topic | Table | Files):
            raise PipelineError(f"source {name!r} must be a topic, a table or files")
        if isinstance(source, Topic):
            _check_columns(name, source)
    if all(isinstance(source, Table) for source in sources.values()):
        raise PipelineError("a table alone is no stream: one source must be a topic or files")
    for name, sink in sinks.items():
        if not isinstance(sink, Topic | Files):
            raise PipelineError(f"sink {name!r} must be a topic or files")
        if isinstance(sink, Topic):
            _check_target(f"sink {name!r}", sink)
        elif mode != "append":
            raise PipelineError(f"sink {name!r} is files, which can only be appended to")
        if not NAME.fullmatch(name) or name == BAD_RECORDS:
            raise PipelineError(f"a sink cannot be called {name!r}; name it: sinks={{…}}")
    if bad_records is not None:
        if not isinstance(bad_records, Topic):
            raise PipelineError("bad_records must be a topic")
        _check_target("bad_records", bad_records)
    if mode not in MODES:
        raise PipelineError(f"mode must be one of {listed(MODES)} (got {mode!r})")
    for option in options or {}:
        if not option.startswith("spark."):
            raise PipelineError(f"options are of the session, spark.… (got {option!r})")


def _check_columns(name: str, source: Topic) -> None:
    if source.format == "json" and source.schema is None:
        raise PipelineError(f"source {name!r} is JSON and needs a schema")
    names = list(source.include.values())
    twice = {each for each in names if names.count(each) > 1}
    if twice:
        raise PipelineError(f"source {name!r} has two columns {min(twice)!r}")


def _check_target(what: str, target: Topic) -> None:
    if target.pattern is not None:
        raise PipelineError(f"{what} cannot be a pattern")
    if len(target.names) != 1:
        raise PipelineError(f"{what} must be one topic (got {listed(target.names)})")


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def counted(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def described(made: Any) -> str:
    if isinstance(made, Mapping):
        return f"a dict of {listed(map(str, made))}"
    if isinstance(made, tuple | list):
        return f"{len(made)} of them"
    return "nothing" if made is None else f"a {type(made).__name__}"
