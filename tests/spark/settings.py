"""What every Spark session of these tests is made with."""

CONF = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    # A session of tests runs for minutes, too short for the optimizing compiler to pay off.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
