"""Fork, exit and imports: what a client does to its process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap

from ottla import Producer
from tests.client.reading import read_all

WAIT_S = 60


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_was_sent_and_never_flushed_is_sent_at_exit(bootstrap: str, topic: str) -> None:
    """A script that sends and ends loses nothing."""
    done = run(
        """
        import sys
        from ottla import Producer
        producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=10_000)
        for index in range(1000):
            producer.send(sys.argv[2], b"%d" % index)
        """,
        bootstrap,
        topic,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(read_all(bootstrap, topic)) == 1000


def test_an_exception_or_sys_exit_ends_the_process_at_once(bootstrap: str, topic: str) -> None:
    """The background thread never holds the interpreter."""
    done = run(
        """
        import sys
        from ottla import Producer
        producer = Producer(bootstrap_servers=sys.argv[1])
        producer.send(sys.argv[2], b"x").get(60)
        sys.exit(3)
        """,
        bootstrap,
        topic,
    )
    assert (done.returncode, done.stderr) == (3, "")


def test_a_dropped_producer_sends_all_and_ends_its_thread(bootstrap: str, topic: str) -> None:
    """Without close() and without a reference left: what waits is sent, the thread goes away."""
    done = run(
        """
        import gc, sys, threading, time
        from ottla import Producer
        producer = Producer(bootstrap_servers=sys.argv[1])
        producer.send(sys.argv[2], b"x").get(60)
        assert threading.active_count() == 2
        producer.send(sys.argv[2], b"y")
        del producer
        gc.collect()
        for _ in range(100):
            if threading.active_count() == 1:
                break
            time.sleep(0.02)
        print(threading.active_count())
        """,
        bootstrap,
        topic,
    )
    assert done.stdout == "1\n", done.stderr
    assert [record.value for record in read_all(bootstrap, topic)] == [b"x", b"y"]


def test_a_fork_gets_an_error_and_the_parent_goes_on(bootstrap: str, topic: str) -> None:
    """In the child the producer says what to do, a new one works; the parent's is not disturbed."""
    done = run(
        """
        import os, sys, warnings
        from ottla import Producer
        from ottla.client.errors import IllegalStateError
        # Python 3.12 and later warn of a fork beside threads, which is what this one is about.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        producer = Producer(bootstrap_servers=sys.argv[1])
        producer.send(sys.argv[2], b"before").get(60)
        child = os.fork()
        if child == 0:
            try:
                producer.send(sys.argv[2], b"never")
                producer.flush(5)
            except IllegalStateError as problem:
                assert "fork" in str(problem) and "Try:" in str(problem)
            else:
                os._exit(1)
            with Producer(bootstrap_servers=sys.argv[1]) as own:
                own.send(sys.argv[2], b"child").get(60)
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        producer.send(sys.argv[2], b"after").get(60)
        producer.close()
        """,
        bootstrap,
        topic,
    )
    assert (done.returncode, done.stderr) == (0, "")
    values = [record.value for record in read_all(bootstrap, topic)]
    assert values == [b"before", b"child", b"after"]


def test_the_applications_random_numbers_are_left_alone(bootstrap: str, topic: str) -> None:
    """A program that seeds `random` gets the same numbers with a client as without."""
    random.seed(7)
    before = random.getstate()
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    assert len(read_all(bootstrap, topic)) == 10
    assert random.getstate() == before


def test_importing_ottla_is_cheap_and_the_server_imports_no_client() -> None:
    """`import ottla` loads none of the clients; neither does the server's command."""
    done = run(
        """
        import sys, ottla
        print(any(name.startswith("ottla.client") for name in sys.modules))
        import ottla.cli.server
        print(any(name.startswith("ottla.client") for name in sys.modules))
        """
    )
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_plain_python_by_one_switch(bootstrap: str, topic: str) -> None:
    """OTTLA_PURE=1 takes the plain loops, and everything works the same."""
    script = """
        import sys
        from ottla import Producer
        from ottla.client.codec import records
        with Producer(bootstrap_servers=sys.argv[1], compression_type="lz4") as producer:
            for index in range(500):
                producer.send(sys.argv[2], b"%d" % index, b"k", [("h", b"v")])
        print(records.COMPILED)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), bootstrap, topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "OTTLA_PURE": "1"},
    )
    assert done.stdout == "False\n"
    seen = read_all(bootstrap, topic)
    assert [record.value for record in seen] == [b"%d" % index for index in range(500)]
    assert seen[0].headers == [("h", b"v")]


def test_two_producers_in_one_process(bootstrap: str, topic: str) -> None:
    """Each has its own thread and names itself."""
    with Producer(bootstrap_servers=bootstrap) as one, Producer(bootstrap_servers=bootstrap) as two:
        assert one.config["client_id"] != two.config["client_id"]
        one.send(topic, b"1").get(WAIT_S)
        assert two.send(topic, b"2").get(WAIT_S).offset == 1
