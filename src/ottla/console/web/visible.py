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
    # Of each picture once for all who have these roles.
    return picture.once(("visible", *principal.roles), lambda: _visible(principal, picture))


def topics_for(
    principal: Principal, permission: Permission, picture: ClusterPicture
) -> tuple[str, ...]:
    """The topics with which this principal may do that, in the picture's order."""

    def work() -> tuple[str, ...]:
        may = principal.of_topics(permission, picture.name)
        return tuple(topic for topic in picture.topics if may(topic))

    return picture.once((permission, principal.read_only, *principal.roles), work)


def _visible(principal: Principal, picture: ClusterPicture) -> ClusterPicture:
    seen = principal.of_topics(Permission.VIEW, picture.name)
    allowed = topics_for(principal, Permission.VIEW, picture)

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
        topics={name: picture.topics[name] for name in allowed},
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
