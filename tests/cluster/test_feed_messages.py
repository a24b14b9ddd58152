"""The feed as messages: batches that are encoded once, and a whole image in pieces."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.cluster import feed_messages
from ottla.cluster.feed import Batch, Feed, Snapshot, follow_batches
from ottla.cluster.feed_messages import ANSWER_BYTES_MAX, PIECE_BYTES_MAX, FeedMessages, Follower
from ottla.cluster.image import (
    BrokerConfigured,
    ClusterImage,
    ControllerChanged,
    PartitionImage,
    PartitionsChanged,
    TopicCreated,
    TopicImage,
)
from ottla.wire.api.follow_feed import FollowFeedRequest, FollowFeedResponse
from ottla.wire.malformed import MalformedMessage
from tests.simulated import run_simulated


def new_feed(topics: int = 0, partitions: int = 1) -> Feed:
    """A feed of controller epoch 4 whose image has so many topics."""
    made: list[Feed] = []

    async def main() -> None:
        image = ClusterImage(cluster_id="c").apply(
            7,
            [
                ControllerChanged(1, 4),
                *(TopicCreated(topic(f"t{n}", partitions), {"a": "b"}) for n in range(topics)),
            ],
        )
        made.append(Feed(image))

    run_simulated(main())
    return made[0]


def topic(name: str, partitions: int) -> TopicImage:
    replicas = (1, 2, 3)
    return TopicImage(
        name,
        name.encode().ljust(16, b"-"),
        tuple(PartitionImage(n, 1, 0, 0, replicas, replicas) for n in range(partitions)),
    )


def read_all(
    messages: FeedMessages, number: int = 0, epoch: int = 0
) -> tuple[Sequence[Batch] | Snapshot | None, list[FollowFeedResponse]]:
    """What a follower makes of the answers to its requests, and the answers."""
    follower = Follower(2, 9, number, epoch)
    answers: list[FollowFeedResponse] = []
    while True:
        answer = messages.answer(follower.request)
        if answer is None:
            return None, answers
        answers.append(answer)
        update = follower.answered(answer)
        if update is not None:
            return update, answers


def test_a_large_image_comes_in_pieces_of_bounded_size() -> None:
    """10,000 partitions: every piece is below the limit, and together they are the image."""
    feed = new_feed(topics=20, partitions=500)
    update, answers = read_all(FeedMessages(feed))
    assert isinstance(update, Snapshot)
    assert update.image == feed.image
    assert len(answers) >= 4
    sizes = [len(answer.batches[0]) for answer in answers]
    assert max(sizes) < PIECE_BYTES_MAX + 1000
    assert [answer.piece for answer in answers] == list(range(len(answers)))


def test_pieces_and_batches_are_encoded_once_for_all_followers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred followers cost the encoding of one."""
    feed = new_feed(topics=10, partitions=300)
    messages = FeedMessages(feed)
    feed.publish([BrokerConfigured("", {"a": "1"})])
    read_all(messages)
    read_all(messages, 7, 4)
    monkeypatch.delattr(feed_messages, "write_batch")
    monkeypatch.delattr(feed_messages, "to_message")
    for _ in range(100):
        assert isinstance(read_all(messages)[0], Snapshot)
        assert len(read_all(messages, 7, 4)[0] or ()) == 1


def test_an_image_in_pieces_stays_as_it_is_while_the_feed_goes_on() -> None:
    """The follower has all of the image it began with, then follows the changes after it."""
    feed = new_feed(topics=10, partitions=500)
    messages, before = FeedMessages(feed), feed.image
    follower = Follower(2, 9, 0, 0)
    while True:
        answer = messages.answer(follower.request)
        assert answer is not None
        update = follower.answered(answer)
        if update is not None:
            break
        feed.publish([BrokerConfigured("", {"a": str(answer.piece)})])
    assert isinstance(update, Snapshot)
    assert update.image == before
    batches, _ = read_all(messages, before.number, before.controller_epoch)
    assert isinstance(batches, list)
    assert follow_batches(before, batches) == feed.image


def test_whoever_begins_gets_the_newest_image() -> None:
    """Not one that was encoded for others, though the feed has all that came after it.

    A broker that starts again would find itself the leader that it was before, and begin that old
    epoch anew. Who is in the middle of an older image still gets the rest of it.
    """
    feed = new_feed(topics=10, partitions=500)
    messages, before = FeedMessages(feed), feed.image
    early = Follower(2, 9, 0, 0)
    first = messages.answer(early.request)
    assert first is not None
    assert early.answered(first) is None
    moved = PartitionImage(0, 2, 1, 1, (1, 2, 3), (2, 3))
    feed.publish([PartitionsChanged("t0", topic("t0", 1).id, (moved,))])
    update, _ = read_all(messages)
    assert isinstance(update, Snapshot)
    assert update.image == feed.image != before
    while True:
        answer = messages.answer(early.request)
        assert answer is not None
        assert answer.image_number == before.number
        if early.answered(answer) is not None:
            break


def test_images_that_are_kept_for_followers_are_limited() -> None:
    """A follower whose image was given up for others' begins anew."""
    feed = new_feed(topics=10, partitions=500)
    messages = FeedMessages(feed)
    slow = Follower(2, 9, 0, 0)
    first = messages.answer(slow.request)
    assert first is not None
    assert slow.answered(first) is None
    for n in range(feed_messages.IMAGES_MAX):
        feed.publish([BrokerConfigured("", {"a": str(n)})])
        messages.answer(Follower(3, 9, 0, 0).request)
    answer = messages.answer(slow.request)
    assert answer is not None
    assert (answer.image_number, answer.piece) == (feed.image.number, 0)


def test_an_image_that_is_too_old_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the feed no longer has the changes after it, or another controller has taken over."""
    monkeypatch.setattr("ottla.cluster.feed.BATCHES_KEPT_MAX", 2)
    feed = new_feed(topics=10, partitions=500)
    messages = FeedMessages(feed)
    follower = Follower(2, 9, 0, 0)
    first = messages.answer(follower.request)
    assert first is not None
    assert follower.answered(first) is None
    for n in range(3):
        feed.publish([BrokerConfigured("", {"a": str(n)})])
    answer = messages.answer(follower.request)
    assert answer is not None
    assert (answer.image_number, answer.piece) == (feed.image.number, 0)
    while (update := follower.answered(answer)) is None:
        answer = messages.answer(follower.request)
        assert answer is not None
    assert update == Snapshot(feed.image)


@pytest.mark.parametrize("piece", [-1, 99, 2**31 - 1])
def test_a_piece_that_does_not_exist_begins_anew(piece: int) -> None:
    """Whatever a follower asks for, the answer is one that it can use."""
    feed = new_feed(topics=3)
    messages = FeedMessages(feed)
    assert messages.answer(FollowFeedRequest()) is not None
    wrong = FollowFeedRequest(image_number=7, image_controller_epoch=4, piece=piece)
    answer = messages.answer(wrong)
    assert answer is not None
    assert (answer.image_number, answer.piece, answer.is_last_piece) == (7, 0, True)


def test_batches_of_one_answer_are_limited() -> None:
    """A follower that is far behind gets them in several answers, none above the limit."""
    feed = new_feed()
    for n in range(150):
        feed.publish([BrokerConfigured("", {"a": "x" * 30_000 + str(n)})])
    messages, image, rounds = (
        FeedMessages(feed),
        feed.image._replace(number=7, broker_configs={}),
        0,
    )
    while image.number < feed.image.number:
        answer = messages.answer(FollowFeedRequest(number=image.number, controller_epoch=4))
        assert answer is not None
        assert sum(map(len, answer.batches)) <= ANSWER_BYTES_MAX
        update = Follower(2, 9, image.number, 4).answered(answer)
        assert isinstance(update, list)
        image = follow_batches(image, update)
        rounds += 1
    assert image == feed.image
    assert rounds >= 4


def test_whoever_has_everything_gets_nothing() -> None:
    """The request is parked then."""
    feed = new_feed()
    assert FeedMessages(feed).answer(FollowFeedRequest(number=7, controller_epoch=4)) is None


@pytest.mark.parametrize(
    "answer",
    [
        FollowFeedResponse(image_number=7, batches=[]),
        FollowFeedResponse(image_number=7, batches=[b"", b""]),
        FollowFeedResponse(image_number=7, piece=3, batches=[b"\0" * 13]),
        FollowFeedResponse(batches=[b"\0\1\2"]),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(answer: FollowFeedResponse) -> None:
    """MalformedMessage, and nothing is applied."""
    with pytest.raises(MalformedMessage):
        Follower(2, 9, 0, 0).answered(answer)
