"""DescribeLogDirs (key 35): which log directories a broker has, and how large their partitions are.

v2 flexible · v3 an error for all · v4 total and usable bytes of the volume · v5 whether the
directory is cordoned.
"""

from ..schema import Bool, Int16, Int32, Int64, RequestFor, String, Struct, since


class DescribableLogDirTopic(Struct):
    topic: String = ""
    partitions: list[Int32] = []


class DescribeLogDirsRequest(
    RequestFor["DescribeLogDirsResponse"], key=35, versions=(1, 5), flexible=2
):
    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Struct):
    name: String = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(Struct):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Int64 = since(4, default=-1)
    usable_bytes: Int64 = since(4, default=-1)
    is_cordoned: Bool = since(5)


class DescribeLogDirsResponse(Struct, key=35, versions=(1, 5), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(3)
    results: list[DescribeLogDirsResult] = []
