"""The pictures of docs/console.md: `python -m scripts.console_pictures`, with Chromium installed.

Three brokers, a shop that sells, groups that read and one that does not keep up; a console over
them, which a browser photographs. What the charts show of the hour before was made up from the
first values that were measured: nobody wants to wait that long.
"""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ottla import Admin, Consumer, Producer
from ottla.console.collecting.collector import CollectedCluster
from ottla.console.collecting.samples import samples_of
from ottla.console.history.kept import KeptHistory
from ottla.console.series import Measure, Sample
from ottla.testing import Broker

from .demo.generator import People, Sender

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
BROKERS = 3
SIZE = {"width": 1200, "height": 760}
PHONE = {"width": 390, "height": 760}
MEASURED_S = 25.0
HOUR_MS = 3_600_000
STEP_MS = 10_000
TOPICS = {
    "user-behaviour": 6, "orders": 6, "payments": 3, "page-views": 3, "shipments": 3,
    "customers": 3, "mails": 3, "search-terms": 6, "user-behaviour.bad": 1,
}  # fmt: skip
RULES = """
interval_s = 2
login = false
[clusters.shop]
bootstrap_servers = "{servers}"
metrics = [{metrics}]
[[alerts.receivers]]
name = "on-call"
kind = "slack"
url = "http://127.0.0.1:9/hook"
[[alerts.rules]]
name = "a group is behind"
watch = "group.lag"
threshold = 1000
clear = 500
for_s = 5
severity = "critical"
receivers = ["on-call"]
[[alerts.rules]]
name = "no payments"
watch = "topic.records_in"
side = "below"
threshold = 0.1
for_s = 600
subjects = "payments"
[[alerts.rules]]
name = "a disk is full"
watch = "broker.disk_used"
threshold = 0.99
"""


class Measured(Broker):
    """One broker of a cluster, with its Prometheus endpoint."""

    def __init__(self, number: int, directory: Path) -> None:
        super().__init__(
            directory=directory / f"broker-{number}",
            **{
                "ottla.cluster.directory": str(directory / "cluster"),
                "node.id": number,
                "default.replication.factor": BROKERS,
                "offsets.topic.replication.factor": BROKERS,
                "transaction.state.log.replication.factor": BROKERS,
            },
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.metrics = f"127.0.0.1:{free.getsockname()[1]}"

    def _arguments(self) -> list[str]:
        return [*super()._arguments(), "--metrics", self.metrics]


class Shop:
    """What goes on in the cluster, until `stop`."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.stopping = threading.Event()
        people = People(seed=1883, rate=400, seconds=900)
        self.sender = Sender(servers, "user-behaviour", people)
        self.threads = [
            threading.Thread(target=self.sell, daemon=True),
            threading.Thread(target=self.read, args=("billing", "orders", 0), daemon=True),
            threading.Thread(target=self.read, args=("search-index", "user-behaviour", 0)),
            threading.Thread(target=self.read, args=("recommendations", "user-behaviour", 40)),
            threading.Thread(target=self.read, args=("mailer", "mails", 0), daemon=True),
        ]

    def start(self) -> None:
        self.sender.start()
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.sender.stop()
        for thread in self.threads:
            thread.join()

    def sell(self) -> None:
        chance = random.Random(1883)
        with Producer(bootstrap_servers=self.servers, compression_type="gzip") as producer:
            number = 0
            while not self.stopping.wait(0.05):
                number += 1
                customer = f"customer-{chance.randrange(900):03}"
                amount = round(chance.lognormvariate(3.4, 0.6), 2)
                order = {
                    "id": f"o-{number:06}", "customer": customer, "amount": amount,
                    "country": chance.choice(["de", "cz", "at", "pl", "it"]),
                    "items": chance.randrange(1, 5), "paid": chance.random() < 0.8,
                }  # fmt: skip
                headers = [("trace", f"{chance.getrandbits(64):016x}".encode())]
                key = customer.encode()
                producer.send("orders", json.dumps(order).encode(), key=key, headers=headers)
                for topic, often in (("payments", 0.8), ("shipments", 0.5), ("mails", 0.4)):
                    if chance.random() < often:
                        producer.send(topic, json.dumps({"order": order["id"]}).encode(), key=key)
                page = json.dumps({"page": chance.choice("abcdef"), "views": number}).encode()
                producer.send("page-views", page)

    def read(self, group: str, topic: str, pause_ms: int) -> None:
        with Consumer(
            topic,
            bootstrap_servers=self.servers,
            group_id=group,
            client_id=f"{group}-1",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=1000,
            max_poll_records=14 if pause_ms else 500,
        ) as consumer:
            while not self.stopping.is_set():
                consumer.poll(timeout_ms=500)
                self.stopping.wait(pause_ms / 1000)


def made_up(now: Sequence[Sample], until_ms: int) -> list[Sample]:
    """The hour before: each series waves around its value of now; lag grows towards it."""
    found = []
    grows = {Measure.GROUP_LAG, Measure.GROUP_LAG_MS, Measure.TOPIC_SIZE}
    steady = {
        Measure.BROKER_UP, Measure.CLUSTER_BROKERS_UP, Measure.GROUP_MEMBERS,
        Measure.CLUSTER_OFFLINE, Measure.CLUSTER_UNDER_REPLICATED, Measure.BROKER_DISK_USED,
        Measure.BROKER_MEMORY, Measure.BROKER_CONNECTIONS,
    }  # fmt: skip
    for key, _, value in now:
        chance = random.Random(repr(key))
        phase = chance.random() * 0.5
        for at in range(HOUR_MS // STEP_MS):
            part = at / (HOUR_MS // STEP_MS)
            factor = 1.0
            if key.measure in grows:
                factor = 0.05 + 0.95 * part
            elif key.measure not in steady:
                wave = math.sin(2 * math.pi * (2 * part + phase))
                factor = 1 + 0.25 * wave + 0.12 * (chance.random() - 0.5)
            found.append(Sample(key, until_ms - HOUR_MS + at * STEP_MS, value * factor))
    return sorted(found, key=lambda each: each.time_ms)


def main() -> int:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-pictures-")))
        brokers = [stack.enter_context(Measured(each, home)) for each in range(BROKERS)]
        servers = ",".join(each.bootstrap_servers for each in brokers)
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({name: {"num_partitions": n} for name, n in TOPICS.items()})
        shop = Shop(servers)
        shop.start()
        stack.callback(shop.stop)
        metrics = [f"http://{each.metrics}/metrics" for each in brokers]
        fill(home, servers, metrics)
        address = stack.enter_context(console(home, servers, metrics))
        photograph(address)
    return 0


def fill(home: Path, servers: str, metrics: Sequence[str]) -> None:
    properties = {"bootstrap_servers": servers}
    cluster = CollectedCluster("shop", properties, metrics=metrics, interval_s=1)
    cluster.start()
    time.sleep(MEASURED_S)
    picture = cluster.picture
    cluster.close()
    assert picture.taken_ms is not None
    history = KeptHistory(home / "kept")
    history.append(made_up(samples_of(picture), picture.taken_ms))
    history.close()


class console:
    def __init__(self, home: Path, servers: str, metrics: Sequence[str]) -> None:
        urls = ", ".join(f'"{each}"' for each in metrics)
        file = home / "console.toml"
        file.write_text(RULES.format(servers=servers, metrics=urls))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "console", "--config", str(file), "--port", "0",
             "--data-dir", str(home / "kept"), "--until-input-ends"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> str:
        assert self.process.stdout is not None
        found = re.search(r"http://\S+/", self.process.stdout.readline())
        assert found is not None
        return found[0]

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def photograph(address: str) -> None:
    from playwright.sync_api import Page, sync_playwright

    FOLDER.mkdir(exist_ok=True)
    base = f"{address}c/shop"

    with sync_playwright() as playwright:
        program = shutil.which("chromium")
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = chromium.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        page.set_default_timeout(60_000)

        def keep(name: str, of: Page = page) -> None:
            of.wait_for_timeout(1500)
            path = FOLDER / f"{name}.png"
            of.screenshot(path=path)
            print(path.name, path.stat().st_size)

        page.wait_for_timeout(15_000)  # rates, alerts
        page.goto(f"{base}/")
        keep("overview")
        page.goto(f"{base}/topics/user-behaviour")
        keep("topic")
        page.goto(f"{base}/groups/recommendations")
        keep("group")
        page.goto(f"{base}/topics/orders/messages")
        page.get_by_label("Only where").fill("amount > 60 AND country = 'cz'")
        page.get_by_label("Only where").press("Enter")
        page.locator(".data-open").nth(2).click()
        page.wait_for_timeout(500)
        page.locator("#browse").scroll_into_view_if_needed()
        keep("messages")
        page.goto(f"{base}/sql")
        page.get_by_label("One SELECT").fill(
            "SELECT country, count(*) AS orders, round(sum(amount), 2) AS total,\n"
            "       round(avg(amount), 2) AS mean\n"
            "FROM orders WHERE paid GROUP BY country ORDER BY total DESC"
        )
        page.get_by_role("button", name="Run").click()
        page.locator(".data-plot svg").wait_for()
        keep("sql")
        page.goto(f"{address}alerts")
        keep("alerts")
        page.emulate_media(color_scheme="dark")
        page.goto(f"{base}/brokers/1")
        keep("broker-dark")
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        page.goto(f"{base}/groups/recommendations")
        keep("phone-dark")
        chromium.close()


if __name__ == "__main__":
    sys.exit(main())
