"""Another PySpark beside the installed one, and Spark's own Kafka connector for it.

`environment` installs a PySpark into `.cache/` once (pip, half a GB, about a minute) and gives the
environment of a process that uses it, with everything else from the environment of the tests.
`connector` fetches the jars of Spark's connector once (Maven). The connector is whole in the
registries at 4.0.0 only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.apache import jars

CACHE = Path(__file__).resolve().parents[2] / ".cache"
INSTALL_TIMEOUT_S = 900
CONNECTOR_VERSION = "4.0.0"
CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.kafka", "kafka-clients", "3.9.0"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)


class NotInstalled(Exception):
    """It could not be brought here; the message says why."""


def environment(version: str) -> dict[str, str]:
    """The variables of a process in which `import pyspark` gives this version."""
    root = CACHE.parent
    paths = [str(installed(version)), str(root / "src"), str(root)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # each Python of Spark's would compile us anew
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}


def installed(version: str) -> Path:
    """The folder of this PySpark; safe when several processes ask at once."""
    target = CACHE / f"pyspark-{version}"
    with jars.locked(f"pyspark-{version}"):
        if target.exists():
            return target
        work = CACHE / f"pyspark-{version}.installing"
        shutil.rmtree(work, ignore_errors=True)
        # py4j fits all of these versions, and is there.
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        done = subprocess.run(
            [*command, str(work), f"pyspark=={version}"],
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise NotInstalled(f"pip could not install pyspark {version}: {done.stderr[-500:]}")
        work.rename(target)
    return target


def connector() -> list[Path]:
    """The jars of Spark's own connector."""
    folder = CACHE / f"spark-kafka-{CONNECTOR_VERSION}"
    with jars.locked("spark-kafka"):
        if not folder.exists():
            try:
                jars.copy(CONNECTOR, folder, "-DexcludeTransitive=true")
            except jars.JarsMissing as missing:
                raise NotInstalled(str(missing)) from None
    return sorted(folder.glob("*.jar"))
