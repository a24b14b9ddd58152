"""Where a follower cuts its log when the leader answers that the two part (KIP-279)."""


def truncation_offset(
    leader_epoch: int, leader_end_offset: int, own_epoch: int, own_end_offset: int, end_offset: int
) -> int:
    """Where to cut: the leader's largest epoch not above our last ends at `leader_end_offset`.

    `own_epoch` is our largest epoch not above the leader's. If it is another one, our log is cut to
    its end, and the next answer is about that epoch (KIP-279).
    """
    if own_epoch < 0:
        return min(leader_end_offset, end_offset)
    if own_epoch != leader_epoch:
        return min(own_end_offset, end_offset)
    return min(own_end_offset, leader_end_offset, end_offset)
