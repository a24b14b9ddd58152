"""The page `demo-report.html`: one file, nothing loaded from anywhere, for day and night."""

from __future__ import annotations

from collections import Counter
from html import escape

from . import charts
from .story import Story, rates, thinned

TOP_PAGES = 8
PAGES_OVER_TIME = 4

FOOTER = (
    "Written by <code>make demo</code> of Ottla. The shop, its people and their orders are made "
    "up; the broker, Spark and the SIGKILL were real."
)
STYLE = """
:root { color-scheme: light dark;
  --back: #f7f7f4; --card: #ffffff; --ink: #20242a; --soft: #646b75; --rule: #e3e3dd;
  --good: #2c7a4b; --bad: #b3261e; --span: #b3261e;
  --s0: #2f6fb0; --s1: #d9822b; --s2: #4a9a6f; --s3: #8a5fb0; --s4: #8d8d86; }
@media (prefers-color-scheme: dark) { :root {
  --back: #14171b; --card: #1d2126; --ink: #e8e8e4; --soft: #9aa2ad; --rule: #31373f;
  --good: #66c58a; --bad: #f2897f; --span: #f2897f;
  --s0: #6aa9e9; --s1: #eba45c; --s2: #74c79b; --s3: #b792dc; --s4: #a3a39b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 40px 20px 64px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 8px; letter-spacing: -.01em; }
h2 { font-size: 19px; margin: 0 0 2px; }
p { margin: 0 0 12px; max-width: 72ch; }
p.soft, td.soft, .soft { color: var(--soft); }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 12px;
  padding: 20px 24px; margin-top: 18px; }
.verdict { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr));
  gap: 12px; margin-top: 22px; }
.figures div { background: var(--card); border: 1px solid var(--rule); border-radius: 12px;
  padding: 12px 16px; }
.figures b { display: block; font-size: 24px; font-variant-numeric: tabular-nums; }
.figures span { color: var(--soft); font-size: 13px; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr)); gap: 18px; }
@media (max-width: 460px) { .two { grid-template-columns: 1fr; } }
svg { width: 100%; height: auto; display: block; margin-top: 8px; overflow: visible; }
svg text { font: 13px system-ui, sans-serif; fill: var(--soft); }
svg text.name { fill: var(--ink); } svg .end { text-anchor: end; }
svg .middle { text-anchor: middle; } svg text.mark { fill: var(--span); font-weight: 600; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
svg .area { opacity: .16; stroke: none; } svg .span { fill: var(--span); opacity: .12; }
svg .hover { opacity: 0; } svg .hover:hover { opacity: .9; }
.s0 { stroke: var(--s0); fill: var(--s0); background: var(--s0); }
.s1 { stroke: var(--s1); fill: var(--s1); background: var(--s1); }
.s2 { stroke: var(--s2); fill: var(--s2); background: var(--s2); }
.s3 { stroke: var(--s3); fill: var(--s3); background: var(--s3); }
.s4 { stroke: var(--s4); fill: var(--s4); background: var(--s4); }
svg .bar { stroke: none; }
.legend { font-size: 13px; color: var(--soft); margin: 4px 0 0; }
.legend span { margin-right: 18px; white-space: nowrap; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px;
  margin-right: 6px; vertical-align: -1px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 13px; }
td, th { padding: 7px 12px 7px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
pre { background: var(--back); border: 1px solid var(--rule); border-radius: 8px; padding: 14px;
  overflow-x: auto; font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; margin: 8px 0 0; }
summary { cursor: pointer; font-weight: 600; } details + details { margin-top: 10px; }
footer { color: var(--soft); font-size: 13px; margin-top: 22px; }
"""


def page(story: Story) -> str:
    """The whole page."""
    verdict = (
        '<span class="good">Every event was counted exactly once.</span>'
        if story.good
        else '<span class="bad">The counts are not what they should be.</span>'
    )
    parts = [
        f"<h1>User behaviour, live</h1><p class='verdict'>{verdict}</p>",
        f"<p class='soft'>{escape(told(story))}</p>",
        figures(story),
        flow(story),
        lag(story),
        f'<div class="two">{top_pages(story)}{funnel(story)}</div>',
        over_time(story),
        checks(story),
        happenings(story),
        code(story),
        f"<footer>{FOOTER}</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Ottla: user behaviour, live</title><style>{STYLE}</style></head>"
        f"<body><main>\n{chr(10).join(parts)}\n</main></body></html>\n"
    )


def told(story: Story) -> str:
    killed = ""
    if story.killed_at_s is not None and story.back_at_s is not None:
        away_s = story.back_at_s - story.killed_at_s
        killed = (
            f" After {story.killed_at_s:.0f} seconds the process with all pipelines was killed "
            f"(SIGKILL) and started again; it was counting again {away_s:.0f} seconds later, from "
            "its checkpoint, while the events kept coming."
        )
    where = "an Ottla broker" if story.brokers == 1 else f"{story.brokers} Ottla brokers"
    if story.broker_killed_at_s is not None:
        killed = (
            f" After {story.broker_killed_at_s:.0f} seconds the broker that led the busiest "
            f"partition was killed, and started again later.{killed}"
        )
    return (
        f"A made-up shop sent what its visitors did to {where}; pipelines on Spark "
        f"({story.master}) read the topic and wrote their results back to topics.{killed} "
        "The results below are read from those topics, and compared with a plain recount of "
        "what was sent."
    )


def section(title: str, text: str, inside: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p class='soft'>{escape(text)}</p>{inside}</section>"


def figures(story: Story) -> str:
    tiles = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>"
        for value, name in story.figures
    )
    return f'<div class="figures">{tiles}</div>'


def spans(story: Story) -> list[charts.Span]:
    if story.killed_at_s is None:
        return []
    end = story.back_at_s if story.back_at_s is not None else story.killed_at_s
    return [charts.Span(story.killed_at_s, end, "killed")]


def flow(story: Story) -> str:
    found = rates(thinned(story.samples, 0.5))
    drawn = charts.lines(
        [
            charts.Line("sent, events/s", [(x, sent) for x, sent, _ in found], area=True),
            charts.Line("counted by all pipelines, events/s", [(x, done) for x, _, done in found]),
        ],
        title="Events per second, sent and counted",
        spans=spans(story),
    )
    text = "What the shop sends never stops; what is not counted while Spark is away comes after."
    return section("Events per second", text, drawn)


def lag(story: Story) -> str:
    kept = thinned(story.samples, 0.5)
    behind = charts.Line("not yet counted", [(s.at_s, s.lag) for s in kept], area=True)
    drawn = charts.lines([behind], title="Lag", spans=spans(story))
    text = "Events that are in the topic and not yet counted by all pipelines."
    return section("Lag", text, drawn)


def top_pages(story: Story) -> str:
    rows = [(name, float(count), f"{count:,}") for name, count in story.pages[:TOP_PAGES]]
    drawn = charts.bars(rows, title="Top pages", number=0)
    return section("Top pages", "Views over the whole day: few pages get most of them.", drawn)


def funnel(story: Story) -> str:
    first = story.funnel[0][1] if story.funnel else 0
    rows = [
        (name, float(count), f"{count:,}" + (f" ({count / first:.0%})" if index else ""))
        for index, (name, count) in enumerate(story.funnel)
    ]
    drawn = charts.bars(rows, title="Funnel", number=2)
    return section("Funnel", "How far a visit goes.", drawn)


def over_time(story: Story) -> str:
    totals: Counter[str] = Counter()
    for (_, name), count in story.views.items():
        totals[name] += count
    minutes = sorted({minute for minute, _ in story.views})
    place = {minute: float(index) for index, minute in enumerate(minutes)}
    series = [
        charts.Line(name, [(place[m], story.views.get((m, name), 0)) for m in minutes])
        for name, _ in totals.most_common(PAGES_OVER_TIME)
    ]
    every = max(1, len(minutes) // 8)
    words = {place[minute]: minute for minute in minutes[::every]}
    drawn = charts.lines(series, title="Page views per minute", words=words)
    text = (
        "Tumbling windows of a minute of event time, by a pipeline with a watermark. A minute "
        "there passes in a second here."
    )
    return section("Page views per minute", text, drawn)


def checks(story: Story) -> str:
    rows = "".join(
        f"<tr><td class='{'good' if check.good else 'bad'}'>{'✓' if check.good else '✗'}</td>"
        f"<td>{escape(check.claim)}</td><td>{escape(check.expected)}</td>"
        f"<td>{escape(check.found)}</td></tr>"
        for check in story.checks
    )
    table = (
        "<div class='wide'><table><tr><th></th><th>Claim</th><th>Recount of what was sent</th>"
        f"<th>In the topics</th></tr>{rows}</table></div>"
    )
    text = "Each result topic is read from its beginning, committed records only."
    return section("Checked", text, table)


def happenings(story: Story) -> str:
    rows = "".join(
        f"<tr><td class='soft'>{at_s:.1f} s</td><td>{escape(what)}</td></tr>"
        for at_s, what in story.happenings
    )
    return section("What happened", "Seconds since the first event.", f"<table>{rows}</table>")


def code(story: Story) -> str:
    listed = "".join(
        f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"
        for name, text in story.code
    )
    run = f"<pre>{escape(story.command)}</pre><br>" if story.command else ""
    return section("The pipelines", "The whole of what ran, and how it was started.", run + listed)
