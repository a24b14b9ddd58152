"""`python -m benchmarks.agent_measures`: Ottla's agent beside Flume 1.11.0 and rsyslog's omkafka.

All bring lines of 200 bytes from files into topics of one partition. The agents of a measure run
side by side for all of it; in each round a new file appears for one after the other. The first
round is warm-up, medians of the others count. Throughput is taken from the first record that can be
read to the last, and every record is counted.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.agent_latency import latencies_ms, seconds_to_first
from benchmarks.agent_peers import (
    FILE,
    FLUME,
    FLUME_TUNED,
    KINDS,
    MEMORY,
    OTTLA,
    OTTLA_LEAST,
    OTTLA_ONCE,
    RSYSLOG,
    RSYSLOG_MISSING,
    Agent,
    rsyslog_is_there,
)
from benchmarks.agent_topics import Topic
from benchmarks.report import AT_LEAST, AT_MOST, number
from benchmarks.servers import Broker, Kafka, Ottla
from tests.apache import flume, jars

HERE = Path(__file__).parent
RESULTS = "agent.json"
LINE_BYTES = 200  # with its newline
BROKER_SETTINGS = {"log.retention.check.interval.ms": "2000", "log.segment.bytes": "67108864"}
LATENCY_PER_SECOND = 1000

RATE, CPU = "tail → topic, MB/s", "tail → topic, CPU s per GB"
FILE_RATE, FILE_CPU = "through the file channel, MB/s", "through the file channel, CPU s per GB"
KAFKA_RATE = "tail → topic of Apache Kafka, MB/s"
KAFKA_CPU = "tail → topic of Apache Kafka, CPU s per GB"
PEAK = "memory while 1 GB goes through, at most, MB"
FILE_PEAK = "memory while 1 GB goes through the file channel, at most, MB"
P50, P99 = "line written → record readable p50, ms", "line written → record readable p99, ms"
START, START_CPU = "start to first record delivered, s", "the same, CPU s"

# (row, ours, beside whom or "" for the figure itself, relation, bound)
REACH: tuple[tuple[str, str, str, str, float], ...] = (
    (RATE, OTTLA, FLUME, AT_LEAST, 3),
    (RATE, OTTLA_LEAST, FLUME, AT_LEAST, 3),
    (RATE, OTTLA_LEAST, FLUME_TUNED, AT_LEAST, 1.5),
    (RATE, OTTLA_LEAST, RSYSLOG, AT_LEAST, 1),
    (RATE, OTTLA_ONCE, OTTLA_LEAST, AT_LEAST, 0.8),
    (CPU, OTTLA, FLUME, AT_MOST, 1 / 3),
    (CPU, OTTLA_LEAST, FLUME, AT_MOST, 1 / 3),
    (CPU, OTTLA_LEAST, FLUME_TUNED, AT_MOST, 1 / 1.5),
    (CPU, OTTLA_LEAST, RSYSLOG, AT_MOST, 1),
    (CPU, OTTLA_ONCE, OTTLA_LEAST, AT_MOST, 1 / 0.8),
    (FILE_RATE, OTTLA, FLUME, AT_LEAST, 3),
    (FILE_RATE, OTTLA_ONCE, FLUME_TUNED, AT_LEAST, 3),
    (FILE_RATE, OTTLA_LEAST, FLUME_TUNED, AT_LEAST, 3),
    (PEAK, OTTLA_LEAST, "", AT_MOST, 60),
    (PEAK, OTTLA_ONCE, "", AT_MOST, 60),
    (FILE_PEAK, OTTLA_LEAST, "", AT_MOST, 60),
    (FILE_PEAK, OTTLA_ONCE, "", AT_MOST, 60),
    (P99, OTTLA_LEAST, "", AT_MOST, 50),
    (P99, OTTLA_ONCE, "", AT_MOST, 150),
    (START, OTTLA_LEAST, "", AT_MOST, 0.5),
    (START, OTTLA_ONCE, "", AT_MOST, 0.5),
)


@dataclass
class Run:
    """How much is measured, and what was found: figures by row and kind."""

    home: Path
    kinds: Sequence[str]
    rounds: int = 5  # the first is warm-up
    megabytes: int = 200
    slow_megabytes: int = 40  # of Flume as it comes
    file_megabytes: int = 60
    slow_file_megabytes: int = 10
    memory_megabytes: int = 1000
    latency_s: float = 8.0
    ends_s: float = math.inf  # on the monotonic clock; then no more rounds
    turn: int = 0
    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def record(self, row: str, kind: str, value: float) -> None:
        self.figures.setdefault(row, {}).setdefault(kind, []).append(value)

    def numbers(self) -> Iterator[int]:
        """Rounds, counted from 0: two at least, no other once the time is up."""
        for turn in range(self.rounds):
            if turn > 1 and time.monotonic() > self.ends_s:
                return
            yield turn

    def of(self, *wanted: str) -> list[str]:
        return [kind for kind in wanted if kind in self.kinds]

    def lines_file(self, megabytes: int) -> tuple[Path, int]:
        """A file that no other is like, and how many lines it has."""
        self.turn += 1
        lines = megabytes * 1_000_000 // LINE_BYTES
        path = self.home / f"{self.turn}.lines"
        rest = b"x" * (LINE_BYTES - 21)
        with path.open("wb") as file:
            for begin in range(0, lines, 10_000):
                block = range(begin, min(begin + 10_000, lines))
                file.write(b"".join(b"%08d %010d %b\n" % (self.turn, each, rest) for each in block))
        return path, lines


@contextmanager
def running(
    run: Run, broker: Broker, kinds: Sequence[str], channel: str = MEMORY
) -> Iterator[list[tuple[str, Agent, Topic]]]:
    """Agents that have delivered a first line each."""
    with ExitStack() as stack:
        found = []
        for kind in kinds:
            run.turn += 1
            topic = Topic(broker.bootstrap, f"lines-{run.turn}")
            stack.callback(topic.close)
            agent = KINDS[kind](kind, broker.bootstrap, topic.name, channel)
            stack.callback(agent.remove)
            (agent.logs / "begin.log").write_text(f"the first line of {topic.name}\n")
            agent.start()
            found.append((kind, agent, topic))
        for _, agent, topic in found:
            topic.wait_for(1, agent.check)
        yield found


@contextmanager
def one(kind: type[Broker]) -> Iterator[Broker]:
    broker = kind(dict(BROKER_SETTINGS))
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()


def through(agent: Agent, topic: Topic, path: Path, lines: int) -> tuple[float, float]:
    """MB/s and CPU s per GB of one file."""
    megabytes = lines * LINE_BYTES / 1e6
    before_s = agent.cpu_s()
    agent.add(path, f"{path.stem}.log")
    arrival = topic.wait_for(lines, agent.check)
    cpu_s = agent.cpu_s() - before_s
    topic.empty()
    return megabytes * arrival.share / arrival.seconds, cpu_s / megabytes * 1000


def rounds_of(
    run: Run,
    broker: Broker,
    kinds: Sequence[str],
    channel: str,
    megabytes: Callable[[str], int],
    rows: tuple[str, str],
) -> None:
    with running(run, broker, kinds, channel) as agents:
        for turn in run.numbers():
            files = {size: run.lines_file(size) for size in {megabytes(kind) for kind in kinds}}
            for kind, agent, topic in agents:
                rate, cpu = through(agent, topic, *files[megabytes(kind)])
                if turn:
                    run.record(rows[0], kind, rate)
                    run.record(rows[1], kind, cpu)
            for path, _ in files.values():
                path.unlink()


def tail(run: Run) -> None:
    """Through a memory channel into Ottla's broker."""

    def megabytes(kind: str) -> int:
        return run.slow_megabytes if kind == FLUME else run.megabytes

    with one(Ottla) as broker:
        rounds_of(run, broker, run.of(*KINDS), MEMORY, megabytes, (RATE, CPU))


def file_channel(run: Run) -> None:
    """Through a file channel, on the disk that has the temporary files."""

    def megabytes(kind: str) -> int:
        return run.slow_file_megabytes if kind == FLUME else run.file_megabytes

    with one(Ottla) as broker:
        kinds = run.of(FLUME, FLUME_TUNED, OTTLA, OTTLA_LEAST, OTTLA_ONCE)
        rounds_of(run, broker, kinds, FILE, megabytes, (FILE_RATE, FILE_CPU))


def apache(run: Run) -> None:
    """Into Apache Kafka."""
    with one(Kafka) as broker:
        kinds = run.of(FLUME_TUNED, RSYSLOG, OTTLA_LEAST, OTTLA_ONCE)
        rounds_of(run, broker, kinds, MEMORY, lambda kind: run.megabytes, (KAFKA_RATE, KAFKA_CPU))


def memory(run: Run) -> None:
    """The most resident memory of an agent that 1 GB went through in one go, from its start on."""
    path, lines = run.lines_file(run.memory_megabytes)
    taken = (
        (PEAK, MEMORY, run.of(FLUME_TUNED, RSYSLOG, OTTLA_LEAST, OTTLA_ONCE)),
        (FILE_PEAK, FILE, run.of(OTTLA_LEAST, OTTLA_ONCE)),  # Flume's takes minutes
    )
    with one(Ottla) as broker:
        for row, channel, kinds in taken:
            for kind in kinds:
                with running(run, broker, [kind], channel) as [(_, agent, topic)]:
                    through(agent, topic, path, lines)
                    run.record(row, kind, agent.memory_most_mb())
    path.unlink()


def latency(run: Run) -> None:
    """Lines written at a steady rate, one after the other."""
    kinds = run.of(FLUME, FLUME_TUNED, RSYSLOG, OTTLA_LEAST, OTTLA_ONCE)
    with one(Ottla) as broker, running(run, broker, kinds) as agents:
        for turn in range(min(run.rounds, 3)):
            for kind, agent, topic in agents:
                found = latencies_ms(
                    agent,
                    topic,
                    per_second=LATENCY_PER_SECOND,
                    seconds=run.latency_s if turn else 2.0,
                )
                if turn:
                    run.record(P50, kind, found[len(found) // 2])
                    run.record(P99, kind, found[len(found) * 99 // 100])


def start(run: Run) -> None:
    """From the start of the process to its first record, of one line that is there before."""
    with one(Ottla) as broker:
        for turn in range(run.rounds):
            for kind in run.of(FLUME_TUNED, RSYSLOG, OTTLA, OTTLA_LEAST, OTTLA_ONCE):
                run.turn += 1
                topic = Topic(broker.bootstrap, f"lines-{run.turn}")
                agent = KINDS[kind](kind, broker.bootstrap, topic.name)
                try:
                    (agent.logs / "begin.log").write_text(f"the first line of {topic.name}\n")
                    seconds, cpu_s = seconds_to_first(agent, topic)
                finally:
                    agent.remove()
                    topic.close()
                if turn:
                    run.record(START, kind, seconds)
                    run.record(START_CPU, kind, cpu_s)


MEASURES: dict[str, Callable[[Run], None]] = {
    "tail": tail,
    "file-channel": file_channel,
    "memory": memory,
    "latency": latency,
    "start": start,
    "apache": apache,
}
ROWS = {
    "tail": (RATE, CPU),
    "file-channel": (FILE_RATE, FILE_CPU),
    "memory": (PEAK, FILE_PEAK),
    "latency": (P50, P99),
    "start": (START, START_CPU),
    "apache": (KAFKA_RATE, KAFKA_CPU),
}
QUICK = {
    "rounds": 2,
    "megabytes": 60,
    "slow_megabytes": 10,
    "file_megabytes": 30,
    "slow_file_megabytes": 3,
    "memory_megabytes": 200,
    "latency_s": 4.0,
}


def medians(figures: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, float]]:
    """By row and kind; rows in the order of the measures."""
    order = [row for rows in ROWS.values() for row in rows]
    return {
        row: {kind: statistics.median(values) for kind, values in figures[row].items()}
        for row in order
        if row in figures
    }


def table(found: dict[str, dict[str, float]]) -> str:
    """A figure of each agent a column, in Markdown."""
    lines = [f"| measure | {' | '.join(KINDS)} |", "|---|" + "---|" * len(KINDS)]
    for row, by_kind in found.items():
        lines.append(f"| {row} | {' | '.join(number(by_kind.get(kind)) for kind in KINDS)} |")
    return "\n".join(lines)


def reach_table(found: dict[str, dict[str, float]]) -> str:
    """What was to be reached, and whether it was."""
    lines = ["| measure | of | figure | reach | met |", "|---|---|---|---|---|"]
    for row, ours, other, relation, bound in REACH:
        by_kind = found.get(row, {})
        of = f"{ours} / {other}" if other else ours
        unit = " ×" if other else ""
        if ours not in by_kind or (other and other not in by_kind):
            lines.append(f"| {row} | {of} | – | {relation} {bound:.3g}{unit} | not measured |")
            continue
        value = by_kind[ours] / by_kind[other] if other else by_kind[ours]
        met = value >= bound if relation == AT_LEAST else value <= bound
        shown = f"{value:.2f}{unit}" if other else number(value)
        lines.append(
            f"| {row} | {of} | {shown} | {relation} {bound:.3g}{unit} "
            f"| {'yes' if met else '**no**'} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_measures")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(MEASURES),
        default=list(MEASURES),
        help="take only these; others stay as they are",
    )
    parser.add_argument("--quick", action="store_true", help="smaller amounts, one round counts")
    parser.add_argument("--rounds", type=int, help="the first is not counted")
    parser.add_argument("--minutes", type=float, default=8, help="then one counted round")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--output", type=Path, default=HERE / "results", help="where results go")
    options = parser.parse_args()
    for each in (jars, flume):
        if not each.present():
            each.fetch()
    kinds = list(options.kinds)
    if RSYSLOG in kinds and not rsyslog_is_there():
        print(RSYSLOG_MISSING)
        kinds.remove(RSYSLOG)
    path = options.output / RESULTS
    with tempfile.TemporaryDirectory(prefix="bench-agent-") as home:
        run = Run(Path(home), kinds, **(QUICK if options.quick else {}))
        run.rounds = options.rounds or run.rounds
        run.ends_s = time.monotonic() + options.minutes * 60
        if options.only != list(MEASURES) and path.exists():
            run.figures = earlier_figures(path, options.only)
        for name in options.only:
            print(name, flush=True)
            MEASURES[name](run)
            options.output.mkdir(exist_ok=True)
            path.write_text(json.dumps({"figures": run.figures}, indent=1) + "\n")
    found = medians(run.figures)
    print(table(found), reach_table(found), sep="\n\n")


def earlier_figures(path: Path, only: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """What another run has left, without what is measured again."""
    figures: dict[str, dict[str, list[float]]] = json.loads(path.read_text())["figures"]
    again = {row for name in only for row in ROWS[name]}
    return {row: by_kind for row, by_kind in figures.items() if row not in again}


if __name__ == "__main__":
    main()
