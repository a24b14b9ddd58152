"""The home of Spark that has no zip of PySpark in it."""

from __future__ import annotations

from pathlib import Path

from ottla.spark.home import quick_home


def test_a_home_has_what_spark_starts_from_but_no_zip_of_pyspark(tmp_path: Path) -> None:
    """Scripts and jars are reached through it, the zip is not, and making it twice is harmless."""
    for _ in range(2):
        home = quick_home(tmp_path)
    assert (home / "bin" / "spark-submit").exists()
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert not (home / "python").exists()
