"""Options that plans, event logs and the UI must not show.

Spark hides the values of options that look like a password or a token; a line of JAAS and a key in
PEM it would show where they do not hold such a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS_REGEX = "spark.sql.redaction.options.regex"
SPARK_S = "(?i)url"  # its default
REDACTED = r"(?i)url|jaas|password|secret|token|keystore[.]key|ssl[.]key"


def hide_secrets(spark: SparkSession) -> None:
    """Let the session hide them, unless somebody has said what is to be hidden."""
    if spark.conf.get(OPTIONS_REGEX, SPARK_S) == SPARK_S:
        spark.conf.set(OPTIONS_REGEX, REDACTED)
