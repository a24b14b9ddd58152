"""`python -m benchmarks.console_pages`: what pages and collecting cost at a thousand topics.

A broker with 1,000 topics of 3 partitions and 200 groups of 5 topics each, some of both busy
(`--topics 10000 --partitions 1` for a big one); a console over it as people start it, behind its
login. First nobody looks: what collecting takes of a core, and the memory. Then each kind of page
is asked for again and again over one connection: the median and the 99th percentile until the last
byte, and the console's CPU for one.
"""

from __future__ import annotations

import argparse
import http.client
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from ottla import Consumer, Producer, TopicPartition
from ottla.client.admin import Admin
from ottla.structs import OffsetAndMetadata
from ottla.testing import Broker

PARTITIONS = 3
TOPICS_OF_A_GROUP = 5
BUSY_TOPICS = 50
RECORDS_A_SECOND = 200
SETTLE_S = 40.0  # every kind of question was asked once, charts have a value
PASSWORD = "a phrase for the benchmark"


def name_of(topic: int) -> str:
    return f"shop.topic-{topic:04}"


def fill(servers: str, topics: int, partitions: int, groups: int) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        for at in range(0, topics, 200):
            some = range(at, min(topics, at + 200))
            admin.create_topics({name_of(each): {"num_partitions": partitions} for each in some})
    with Producer(bootstrap_servers=servers) as producer:
        for topic in range(topics):
            for partition in range(partitions):
                producer.send(name_of(topic), b"x" * 200, partition=partition)
    for group in range(groups):
        with Consumer(
            bootstrap_servers=servers, group_id=f"group-{group:03}", enable_auto_commit=False
        ) as consumer:
            consumer.commit(
                {
                    TopicPartition(name_of((group + each) % topics), partition): OffsetAndMetadata(
                        0, ""
                    )
                    for each in range(TOPICS_OF_A_GROUP)
                    for partition in range(partitions)
                }
            )


class Traffic(threading.Thread):
    """Something moves in some topics."""

    def __init__(self, servers: str, topics: int) -> None:
        super().__init__(daemon=True)
        self.servers, self.topics = servers, min(BUSY_TOPICS, topics)
        self.stopping = threading.Event()

    def run(self) -> None:
        with Producer(bootstrap_servers=self.servers, linger_ms=50) as producer:
            number = 0
            while not self.stopping.wait(0.5):
                for _ in range(RECORDS_A_SECOND // 2):
                    number += 1
                    producer.send(name_of(number % self.topics), b"y" * 200)


@contextmanager
def console(directory: Path, servers: str) -> Iterator[tuple[str, str, psutil.Process]]:
    """Host and port, the first password, the process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "console", "--bootstrap-server", servers, "--port", "0",
         "--data-dir", str(directory), "--until-input-ends", "--log-level", "warning"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    ready, password = process.stdout.readline(), process.stdout.readline()
    address = re.search(r"http://([^/]+)/", ready)
    secret = re.search(r"admin with (\S+),", password)
    assert address is not None
    assert secret is not None
    try:
        yield address[1], secret[1], psutil.Process(process.pid)
    finally:
        process.communicate()


class Browser:
    """One connection that stays open, and its cookies."""

    def __init__(self, address: str) -> None:
        self.connection = http.client.HTTPConnection(address, timeout=60)
        self.cookies: dict[str, str] = {}

    def ask(self, method: str, path: str, fields: dict[str, str] | None = None) -> tuple[int, str]:
        headers = {"Accept": "text/html"}
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        body = None
        if fields is not None:
            body = urllib.parse.urlencode(fields)
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        for each in answer.headers.get_all("Set-Cookie") or []:
            cookie, _, value = each.partition(";")[0].partition("=")
            self.cookies[cookie] = value
        return answer.status, text

    def post(self, path: str, fields: dict[str, str]) -> None:
        _, page = self.ask("GET", path)
        found = re.search(r'name="csrf" value="([^"]+)"', page)
        assert found is not None
        status, text = self.ask("POST", path, {"csrf": found[1], **fields})
        assert status == 303, text

    def sign_in(self, one_time: str) -> None:
        self.post("/login", {"name": "admin", "password": one_time, "next": "/"})
        new = {"new": PASSWORD, "again": PASSWORD}
        self.post("/password", {"current": one_time, **new})
        # A change of the password ends the session that was opened with the first.
        if self.ask("GET", "/c/main/")[0] != 200:
            self.post("/login", {"name": "admin", "password": PASSWORD, "next": "/"})


def pages(broker: int) -> dict[str, str]:
    topic, key = name_of(7), urllib.parse.quote('["topic.records_in","shop.topic-0007",""]')
    return {
        "overview": "/c/main/",
        "brokers": "/c/main/brokers",
        "a broker": f"/c/main/brokers/{broker}",
        "a broker's partitions": f"/c/main/brokers/{broker}?tab=partitions",
        "topics": "/c/main/topics",
        "topics, the last page": "/c/main/topics?page=1000000",
        "topics by rate, searched": "/c/main/topics?q=topic-0&sort=records_in&desc=1",
        "a topic": f"/c/main/topics/{topic}",
        "a topic's groups": f"/c/main/topics/{topic}?tab=groups",
        "messages (the page)": f"/c/main/topics/{topic}/messages",
        "groups": "/c/main/groups",
        "groups by lag": "/c/main/groups?sort=lag&desc=1",
        "a group": "/c/main/groups/group-007",
        "SQL (the page)": "/c/main/sql",
        "transactions": "/c/main/transactions",
        "reassignments": "/c/main/reassignments",
        "pipelines": "/c/main/pipelines",
        "alerts": "/alerts",
        "a new alert rule": "/alerts/rule",
        "users": "/users",
        "audit log": "/audit",
        "a chart's series": f"/c/main/series?key={key}",
        "API: topics": "/api/v1/clusters/main/topics",
    }


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def collecting(process: psutil.Process, watched_s: float) -> None:
    began, spent = time.perf_counter(), cpu_s(process)
    time.sleep(watched_s)
    share = (cpu_s(process) - spent) / (time.perf_counter() - began)
    memory = process.memory_info().rss / 2**20
    print(f"collecting: {share:.1%} of a core over {watched_s:.0f} s, {memory:.0f} MiB\n")


def measured(browser: Browser, process: psutil.Process, path: str, rounds: int) -> str:
    for _ in range(3):
        status, text = browser.ask("GET", path)
        assert status == 200, (path, status)
    times = []
    spent = cpu_s(process)
    for _ in range(rounds):
        began = time.perf_counter()
        browser.ask("GET", path)
        times.append(1000 * (time.perf_counter() - began))
    spent = 1000 * (cpu_s(process) - spent) / rounds
    times.sort()
    last = times[min(rounds - 1, int(rounds * 0.99))]
    kib = len(text) / 1024
    return f"{statistics.median(times):.1f} | {last:.1f} | {spent:.1f} | {kib:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console_pages", description=__doc__)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="of each topic")
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--watched-s", type=float, default=120.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Broker() as broker:
        servers = broker.bootstrap_servers
        fill(servers, options.topics, options.partitions, options.groups)
        with Admin(bootstrap_servers=servers) as admin:
            node = admin.describe_cluster()["brokers"][0]["broker_id"]
        traffic = Traffic(servers, options.topics)
        traffic.start()
        with console(Path(directory), servers) as (address, password, process):
            time.sleep(SETTLE_S)
            print(
                f"{options.topics:,} topics of {options.partitions} partitions, "
                f"{options.groups} groups"
            )
            collecting(process, options.watched_s)
            browser = Browser(address)
            browser.sign_in(password)
            print("| page | median ms | p99 ms | CPU ms | KiB |\n|---|---|---|---|---|")
            for name, path in pages(node).items():
                print(
                    f"| {name} | {measured(browser, process, path, options.rounds)} |", flush=True
                )
            memory = process.memory_info().rss / 2**20
            print(f"\nafter all pages: {memory:.0f} MiB")
        traffic.stopping.set()
        traffic.join()


if __name__ == "__main__":
    main()
