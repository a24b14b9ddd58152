"""The feed as messages of `wire/api/follow_feed.py`: the controller's side, and a follower's. Pure.

What a change costs does not grow with the number of followers but for the sending: a batch, or a
piece of a whole image, is encoded when the first follower needs it, and its bytes are kept for the
others. No answer is larger than ANSWER_BYTES_MAX, unless a single batch is.

An image that is being read in pieces stays as it is while the feed goes on: the follower gets the
changes after it when it has all pieces. It is given up for a newer one when the feed no longer has
those changes. Whoever begins gets the newest image: in an older one a broker that has just
registered would find itself the leader of what others lead by now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ottla.cluster.features import metadata_level
from ottla.cluster.feed import Batch, Feed, Snapshot
from ottla.cluster.feed_codec import changes_of, read_batch, to_message, write_batch
from ottla.cluster.image import UNDERSTOOD, ClusterImage, Levels
from ottla.wire import feed_records as wire
from ottla.wire.api.follow_feed import FollowFeedRequest, FollowFeedResponse
from ottla.wire.malformed import MalformedMessage

# Batches of one answer, and a piece of an image: about 2,500 partitions, which are encoded and
# decoded in five milliseconds. A single batch may be as large as a step of the controller.
ANSWER_BYTES_MAX = PIECE_BYTES_MAX = 64 * 1024
# Encoded batches that are kept: followers are rarely further apart than this.
ENCODED_BYTES_MAX = 4 * 1024 * 1024
PIECES_MAX = 100_000  # of one image, which would be 6 GB
# Images that followers may be reading at once; who reads another one begins anew.
IMAGES_MAX = 16


class FeedMessages:
    """Answers the requests of all followers of one feed."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._encoded: dict[tuple[int, int], bytes] = {}  # by controller epoch and number
        self._order: deque[tuple[int, int]] = deque()
        self._bytes = 0
        # By controller epoch and number, the one that was read last at the end.
        self._images: dict[tuple[int, int], ImagePieces] = {}

    def answer(self, request: FollowFeedRequest) -> FollowFeedResponse | None:
        """What the follower lacks; None when it has everything."""
        if request.image_number >= 0:
            return self._piece(request)
        update = self._feed.since(request.number, request.controller_epoch)
        if isinstance(update, Snapshot):
            return self._first_piece(update.image)
        if not update:
            return None
        batches: list[bytes] = []
        size = 0
        for batch in update:
            data = self._encode(batch)
            size += len(data)
            if batches and size > ANSWER_BYTES_MAX:
                break
            batches.append(data)
        return FollowFeedResponse(
            controller_epoch=self._feed.image.controller_epoch, batches=batches
        )

    def _encode(self, batch: Batch) -> bytes:
        key = batch.controller_epoch, batch.number
        data = self._encoded.get(key)
        if data is None:
            # As of now: every broker that follows understands the level of now.
            level = metadata_level(self._feed.image.features)
            data = self._encoded[key] = write_batch(batch, level)
            self._order.append(key)
            self._bytes += len(data)
            while self._bytes > ENCODED_BYTES_MAX and len(self._order) > 1:
                self._bytes -= len(self._encoded.pop(self._order.popleft()))
        return data

    def _first_piece(self, image: ClusterImage) -> FollowFeedResponse:
        key = image.controller_epoch, image.number
        return self._read(key, self._images.get(key) or ImagePieces(image)).answer(0)

    def _piece(self, request: FollowFeedRequest) -> FollowFeedResponse:
        key = request.image_controller_epoch, request.image_number
        pieces = self._images.get(key)
        if pieces is None or not pieces.has(request.piece) or not self._can_follow(pieces.image):
            return self._first_piece(self._feed.image)
        return self._read(key, pieces).answer(request.piece)

    def _read(self, key: tuple[int, int], pieces: ImagePieces) -> ImagePieces:
        """Keep the pieces, and those of other images that were read not long ago."""
        self._images.pop(key, None)
        self._images[key] = pieces
        if len(self._images) > IMAGES_MAX:
            del self._images[next(iter(self._images))]
        return pieces

    def _can_follow(self, image: ClusterImage) -> bool:
        """Whether the feed still has what came after this image."""
        return not isinstance(self._feed.since(image.number, image.controller_epoch), Snapshot)


class ImagePieces:
    """One image in pieces, each encoded when it is first asked for."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._level = metadata_level(image.features)
        self._changes = changes_of(image)
        self._left: wire.FeedRecord | None = next(self._records())
        self._pieces: list[bytes] = []

    def has(self, index: int) -> bool:
        """Whether there is such a piece, or it can be encoded next."""
        known = len(self._pieces)
        return 0 <= index < known or (index == known and self._left is not None)

    def answer(self, index: int) -> FollowFeedResponse:
        """The piece; `has` must be true."""
        if index == len(self._pieces):
            self._pieces.append(self._next())
        return FollowFeedResponse(
            controller_epoch=self.image.controller_epoch,
            image_number=self.image.number,
            piece=index,
            is_last_piece=index == len(self._pieces) - 1 and self._left is None,
            batches=[self._pieces[index]],
        )

    def _records(self) -> Iterator[wire.FeedRecord]:
        for change in self._changes:
            message = to_message(change)
            # ACLs that an operator of ZooKeeper has left there come with the level that has them;
            # a broker without them denies.
            if wire.version_at(type(message), self._level) >= 0:
                yield wire.pack(message, self._level)

    def _next(self) -> bytes:
        assert self._left is not None
        records, size = [self._left], len(self._left.data)
        self._left = None
        for record in self._records():
            size += len(record.data)
            if size > PIECE_BYTES_MAX:
                self._left = record
                break
            records.append(record)
        return wire.write(
            wire.FeedBatch(
                number=self.image.number,
                controller_epoch=self.image.controller_epoch,
                records=records,
            )
        )


class Follower:
    """One follower's side: what to ask next, and the update once it is there."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        number: int,
        epoch: int,
        levels: Levels = UNDERSTOOD,
    ) -> None:
        """`levels` are those that the follower understands."""
        self.request = FollowFeedRequest(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            number=number,
            controller_epoch=epoch,
            lowest_level=levels.lowest,
            highest_level=levels.highest,
        )
        self._image = ClusterImage()

    def answered(self, response: FollowFeedResponse) -> list[Batch] | Snapshot | None:
        """The update; None when `request` must be sent again. Raises MalformedMessage."""
        highest = self.request.highest_level
        batches = [read_batch(data, highest) for data in response.batches]
        if response.image_number < 0:
            if self.request.image_number >= 0:
                raise MalformedMessage("batches of changes in place of a piece of the image")
            return batches
        if len(batches) != 1:
            raise MalformedMessage(f"a piece of an image in {len(batches)} batches")
        if response.piece == 0:
            self._image = ClusterImage()
        elif (response.image_number, response.controller_epoch, response.piece) != (
            self.request.image_number,
            self.request.image_controller_epoch,
            self.request.piece,
        ):
            raise MalformedMessage(f"piece {response.piece} of an image that was not asked for")
        self._image = self._image.apply(response.image_number, batches[0].changes)
        if response.is_last_piece:
            return Snapshot(self._image)
        if response.piece >= PIECES_MAX:
            raise MalformedMessage(f"an image in more than {PIECES_MAX} pieces")
        self.request.image_number = response.image_number
        self.request.image_controller_epoch = response.controller_epoch
        self.request.piece = response.piece + 1
        return None
