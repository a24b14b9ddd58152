"""FollowFeed (key 10,000, Ottla's own): a broker follows the controller's changes. Brokers only.

The request names the change that the broker has applied, and the controller that made it. The
answer has the batches after that change, as soon as there are some; or, when the broker is too far
behind or has followed another controller, the first piece of the whole image (`image_number` is not
-1). The broker then asks for the other pieces, one after the other; when that image is no longer
there, the answer is the first piece of a newer one.

Each batch, and each piece, is the bytes of a `FeedBatch` (`wire/feed_records.py`), encoded once for
all followers.
"""

from ..schema import Bool, Bytes, Int16, Int32, Int64, NullableString, RequestFor, Struct, tagged


class FollowFeedRequest(RequestFor["FollowFeedResponse"], key=10_000, versions=(0, 0), flexible=0):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1  # -1: not registered yet
    number: Int64 = 0
    controller_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    image_number: Int64 = -1
    image_controller_epoch: Int32 = -1
    piece: Int32 = 0
    # The levels of `wire/feed_records.py` that the broker understands.
    lowest_level: Int16 = tagged(0, since=0, default=1)
    highest_level: Int16 = tagged(1, since=0, default=1)


class FollowFeedResponse(Struct, key=10_000, versions=(0, 0), flexible=0):
    error_code: Int16 = 0
    controller_epoch: Int32 = 0
    image_number: Int64 = -1
    piece: Int32 = 0
    is_last_piece: Bool = False
    batches: list[Bytes] = []
    # How many writes the metadata tree had had when this controller opened it, and has had by now;
    # -1 where they are not counted.
    tree_opened_at: Int64 = -1
    tree_writes: Int64 = -1
    error_message: NullableString = tagged(0, since=0, default=None)
