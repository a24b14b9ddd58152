"""The feed: numbers, long poll, the whole image, fencing, waiting until applied."""

import asyncio

import pytest

from ottla.cluster import feed as feed_module
from ottla.cluster.feed import Batch, Feed, Snapshot, StaleController, follow_batches
from ottla.cluster.image import BrokerConfigured, ClusterImage, ControllerChanged
from tests.simulated import pass_time, run_simulated


def change(value: str) -> BrokerConfigured:
    return BrokerConfigured("", {"x": value})


def test_a_follower_gets_what_came_after_its_number() -> None:
    """All batches since, in order; applying them gives the controller's own image."""

    async def main() -> None:
        feed = Feed()
        assert [feed.publish([change(str(i))]) for i in range(3)] == [1, 2, 3]
        news = await feed.after(1, 0)
        assert isinstance(news, list)
        assert [batch.number for batch in news] == [2, 3]
        assert follow_batches(ClusterImage(number=1), news) == feed.image

    run_simulated(main())


def test_a_follower_that_has_everything_waits() -> None:
    """The long poll returns as soon as something is published, to every follower."""

    async def main() -> None:
        feed = Feed()
        followers = [asyncio.create_task(feed.after(0, 0)) for _ in range(3)]
        await pass_time(10)
        assert not any(task.done() for task in followers)
        feed.publish([change("a")])
        for news in await asyncio.gather(*followers):
            assert isinstance(news, list)
            assert news[0].changes == [change("a")]

    run_simulated(main())


def test_too_far_behind_means_the_whole_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring is bounded; who asks for what has left it gets a Snapshot."""
    monkeypatch.setattr(feed_module, "BATCHES_KEPT_MAX", 5)

    async def main() -> None:
        feed = Feed()
        for i in range(20):
            feed.publish([change(str(i))])
        news = await feed.after(15, 0)
        assert isinstance(news, list)
        assert len(news) == 5
        news = await feed.after(14, 0)
        assert isinstance(news, Snapshot)
        assert news.image is feed.image

    run_simulated(main())


def test_the_ring_is_bounded_by_content_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few batches with many changes do not pile up."""
    monkeypatch.setattr(feed_module, "WEIGHT_KEPT_MAX", 10)

    async def main() -> None:
        feed = Feed()
        for _ in range(3):
            feed.publish([change(str(i)) for i in range(4)])
        assert isinstance(await feed.after(1, 0), list)
        assert isinstance(await feed.after(0, 0), Snapshot)

    run_simulated(main())


def test_another_controller_means_the_whole_image() -> None:
    """A number counts only within one controller's epoch."""

    async def main() -> None:
        feed = Feed()
        feed.publish([ControllerChanged(1, 7)])
        assert isinstance(await feed.after(1, 6), Snapshot)
        assert isinstance(await feed.after(99, 7), Snapshot)

    run_simulated(main())


def test_changes_of_an_old_controller_are_refused() -> None:
    """StaleController, and the image stays as it was."""
    image = ClusterImage(number=4, controller_epoch=3)
    with pytest.raises(StaleController, match="epoch 2"):
        follow_batches(image, [Batch(5, 2, [change("x")])])


def test_wait_applied_waits_for_every_follower() -> None:
    """And for nobody when nobody follows; a follower that goes is not waited for."""

    async def main() -> None:
        feed = Feed()
        number = feed.publish([change("a")])
        await feed.wait_applied(number)
        feed.follow(1)
        feed.follow(2)
        waiter = asyncio.create_task(feed.wait_applied(number))
        feed.applied(1, number)
        await pass_time(0)
        assert not waiter.done()
        feed.applied(2, number - 1)
        await pass_time(0)
        assert not waiter.done()
        feed.unfollow(2)
        await waiter

    run_simulated(main())


def test_closing_lets_everybody_go() -> None:
    """Followers get an empty list, waiters return."""

    async def main() -> None:
        feed = Feed()
        feed.follow(1)
        number = feed.publish([change("a")])
        poll = asyncio.create_task(feed.after(number, 0))
        waiter = asyncio.create_task(feed.wait_applied(number))
        await pass_time(0)
        feed.close()
        assert await poll == []
        await waiter

    run_simulated(main())
