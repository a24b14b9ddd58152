"""The part of a cluster's picture that one principal may see."""

from __future__ import annotations

from dataclasses import replace

from ..access.permissions import Permission, Principal
from ..picture import ClusterPicture, GroupPicture, PipelinePicture


def visible(principal: Principal, picture: ClusterPicture) -> ClusterPicture:
    """The picture without the topics that this principal may not view, and without what would name
    them: lags, assignments, partitions of transactions, reassignments. A group of which nothing is
    left is not shown. Costs nothing for one who sees all topics."""
    if principal.sees_all_topics(picture.name):
        return picture
    allowed = set(principal.visible(picture.name, picture.topics))

    def seen(topic: str) -> bool:
        return topic in allowed or principal.may(Permission.VIEW, picture.name, topic)

    def group_seen(group: GroupPicture) -> GroupPicture:
        lags = tuple(each for each in group.lags if seen(each.topic))
        return replace(
            group,
            members=tuple(
                replace(each, assigned=tuple(part for part in each.assigned if seen(part[0])))
                for each in group.members
            ),
            lags=lags,
            lag=sum(each.lag or 0 for each in lags) if lags else None,
            lag_ms=max((each.lag_ms for each in lags if each.lag_ms is not None), default=None),
        )

    def pipeline_seen(pipeline: PipelinePicture) -> PipelinePicture:
        bad = pipeline.bad_records_topic
        return replace(
            pipeline,
            sinks=tuple(
                each for each in pipeline.sinks if each not in picture.topics or seen(each)
            ),
            bad_records_topic=bad if bad is None or seen(bad) else None,
        )

    groups = {
        name: shown
        for name, group in picture.groups.items()
        if (shown := group_seen(group)).lags or any(each.assigned for each in shown.members)
    }
    return replace(
        picture,
        topics={name: each for name, each in picture.topics.items() if name in allowed},
        groups=groups,
        transactions=tuple(
            replace(each, partitions=tuple(part for part in each.partitions if seen(part[0])))
            for each in picture.transactions
            if any(seen(part[0]) for part in each.partitions)
        ),
        reassignments=tuple(each for each in picture.reassignments if seen(each.topic)),
        pipelines=tuple(
            pipeline_seen(each)
            for each in picture.pipelines
            if all(seen(name) for name in each.sources)
        ),
    )
