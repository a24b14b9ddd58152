"""Figures to rows to a table and a plot. A row says what was to be reached and whether it was."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

# What each measure must reach: of Kafka's figure (`ratio`) or as it stands (`value`).
AT_LEAST, AT_MOST = "≥", "≤"
Targets = dict[str, list[tuple[str, str, float]]]
TARGETS: Targets = {
    "produce, MB/s": [("ratio", AT_LEAST, 1.1)],
    "consume, MB/s": [("ratio", AT_LEAST, 1.1)],
    "CPU s per GB in + GB out": [("ratio", AT_MOST, 0.8)],
    "small produce requests/s, one at a time": [("ratio", AT_LEAST, 1.3)],
    "small produce requests/s, 50 in flight": [("ratio", AT_LEAST, 4.0)],
    "end-to-end p99, ms": [("ratio", AT_MOST, 1.0)],
    "start to first produce, s": [("value", AT_MOST, 0.3)],
    "memory idle, MB": [("value", AT_MOST, 60)],
    "memory after the load, MB": [("value", AT_MOST, 100)],
    "10,000 partitions: create, s": [("ratio", AT_MOST, 1.0)],
    "10,000 partitions: start after a clean stop, s": [("ratio", AT_MOST, 0.2)],
    "10,000 partitions: start after SIGKILL, s": [("ratio", AT_MOST, 0.3)],
    "10,000 partitions: memory, MB": [("ratio", AT_MOST, 0.4)],
    "10,000 partitions: a record to each by Ottla's producer, s": [("value", AT_MOST, 0.5)],
    "10,000 partitions: CPU ms per Metadata request": [("value", AT_MOST, 2)],
    "random read, big over small": [("value", AT_MOST, 1.1)],
    "1,000 waiting fetches, % of a core": [("value", AT_MOST, 2.0)],
    "loop stall p99.9, ms": [("value", AT_MOST, 20)],
    "compaction of 100 B records, MB/s": [("value", AT_LEAST, 100)],
    "compaction of 1 KB records, MB/s": [("value", AT_LEAST, 100)],
    "compaction: bytes of the offset map for a key": [("value", AT_MOST, 40)],
    "transactions/s, 10 records each": [("ratio", AT_LEAST, 1.0)],
    "in transactions over without": [("value", AT_LEAST, 0.9)],
    "OffsetCommit requests/s, 50 in flight": [("ratio", AT_LEAST, 1.5)],
    "join to first record, 1 member, ms": [("ratio", AT_MOST, 1.0)],
    "join to first record, 50 members, ms": [("ratio", AT_MOST, 1.0)],
    "restart with 100,000 committed offsets, s": [("ratio", AT_MOST, 1.0)],
    "loading 100,000 committed offsets after the first produce, s": [("ratio", AT_MOST, 1.0)],
    "1,000 members that heartbeat, % of a core": [("value", AT_MOST, 10)],
    "2,000 members join: another client p99, ms": [("value", AT_MOST, 20)],
    "loading offset records/s": [("value", AT_LEAST, 500_000)],
    "loading: another client p99, ms": [("value", AT_MOST, 20)],
    "5 sessions of 1,000 partitions, 80 records/s: % of a core": [("value", AT_MOST, 5)],
    "5 sessions of 1,000 partitions, 80 records/s: produce p99, ms": [("value", AT_MOST, 5)],
    "5 sessions of 4,000 partitions, 40 records/s: % of a core": [("value", AT_MOST, 5)],
    "5 sessions of 4,000 partitions, 40 records/s: produce p99, ms": [("value", AT_MOST, 5)],
    "next produce after an append that wakes 5,000 readers, ms": [("value", AT_MOST, 10)],
    "1,000 members on 1,000 partitions: settle, s": [("ratio", AT_MOST, 1.0)],
    "1,000 members on 1,000 partitions: a heartbeat a second each, % of a core": [
        ("ratio", AT_MOST, 0.5)
    ],
    "1,000 members on 1,000 partitions: one leaves, others moved": [("value", AT_MOST, 1)],
    "share groups: deliveries/s": [("ratio", AT_LEAST, 1.0)],
    "share groups: CPU s per million": [("ratio", AT_MOST, 0.8)],
    "share groups, every second record by itself: deliveries/s": [("ratio", AT_LEAST, 0.7)],
    "share groups: memory after the load, MB": [("value", AT_MOST, 100)],
    "TLS: produce by a bare client, MB/s": [("ratio", AT_LEAST, 1.2)],
    "TLS: consume, MB/s": [("ratio", AT_LEAST, 1.2)],
    "TLS: CPU s per GB in + GB out": [("ratio", AT_MOST, 0.8)],
    "500 TLS handshakes at once, RSA-2048: another client at most, ms": [("value", AT_MOST, 50)],
    "500 TLS handshakes at once, P-256: another client at most, ms": [("value", AT_MOST, 50)],
}

Row = dict[str, Any]


def summary(figures: dict[str, dict[str, list[float]]], targets: Targets = TARGETS) -> list[Row]:
    """One row a measure: medians of both brokers, their ratio, the targets and whether all are met.

    A ratio without Kafka's figure says nothing about its target.
    """
    rows = []
    for measure, by_broker in figures.items():
        kafka = statistics.median(by_broker["kafka"]) if by_broker.get("kafka") else None
        ottla = statistics.median(by_broker["ottla"]) if by_broker.get("ottla") else None
        ratio = ottla / kafka if kafka and ottla is not None else None
        row: Row = {"measure": measure, "kafka": kafka, "ottla": ottla, "ratio": ratio}
        shown = []
        for kind, relation, bound in targets.get(measure, []):
            found = ratio if kind == "ratio" else ottla
            shown.append(f"{relation} {bound:g}{' ×' if kind == 'ratio' else ''}")
            if found is not None:
                met = found >= bound if relation == AT_LEAST else found <= bound
                row["met"] = row.get("met", True) and met
        if shown:
            row["target"] = " and ".join(shown)
        rows.append(row)
    return rows


def failure(name: str, why: str) -> Row:
    """The row of a measure that could not be taken to its end."""
    row: Row = {"measure": f"{name}: FAILED, {why}", "kafka": None, "ottla": None, "ratio": None}
    return row | {"met": False}


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(rows: list[Row]) -> str:
    """A table in Markdown."""
    lines = [
        "| measure | Kafka 4.3.1 | Ottla | Ottla / Kafka | reach | met |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        met = {True: "yes", False: "**no**", None: ""}[row.get("met")]
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f} ×"
        lines.append(
            f"| {row['measure']} | {number(row['kafka'])} | {number(row['ottla'])} "
            f"| {ratio} | {row.get('target', '')} | {met} |"
        )
    return "\n".join(lines)


def plot(rows: list[Row], path: Path) -> None:
    """Bars of Ottla's figure over Kafka's, on a log scale around 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [row for row in rows if row["ratio"]]
    if not shown:
        return
    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(shown) + 1.2))
    positions = range(len(shown))
    colours = ["#2a9d8f" if row.get("met", True) else "#e76f51" for row in shown]
    axes.barh(positions, [row["ratio"] - 1 for row in shown], left=1, color=colours)
    axes.set_yticks(positions, [row["measure"] for row in shown])
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("Ottla / Apache Kafka 4.3.1")
    for position, row in zip(positions, shown, strict=True):
        axes.annotate(f" {row['ratio']:.2f} ×", (row["ratio"], position), va="center", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
