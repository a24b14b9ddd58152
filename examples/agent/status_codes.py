"""How often was each status code answered? On top of nginx.conf's topic.

The agent has parsed the line: its regex_extractor put the status code into a header, and the sink
gave it to the record. A line that is no request has no such header, and is counted under "-".

    ottla agent run examples/agent/nginx.conf
    ottla pipeline run examples/agent/status_codes.py --live
    ottla consume status-codes --follow

The agent writes in transactions, and the pipeline reads what is committed: both are exactly once,
so each line of the log is counted once. `make demo-agent` shows it.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.spark import pipeline, topic


@pipeline(
    source=topic("access", include=("headers",)),
    sink=topic("status-codes", key="status", configs={"cleanup.policy": "compact"}),
    mode="update",
)
def status_codes(requests: DataFrame) -> DataFrame:
    status = F.get(F.filter("headers", lambda header: header.key == "status"), 0).value
    return requests.groupBy(F.coalesce(status.cast("string"), F.lit("-")).alias("status")).agg(
        F.count("*").alias("requests")
    )
