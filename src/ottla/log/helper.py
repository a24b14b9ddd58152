"""The helper process: `python -m ottla.log.helper` does one job for the broker and ends.

A job comes as one line of JSON on standard input, its answer goes to standard output (see
seams/background.py). Jobs work on files that the broker does not touch meanwhile.
"""

import sys

from ottla.log.rewrite import clean_job
from ottla.seams.background import Job, serve_one_job
from ottla.seams.disk import RealDisk

JOBS: dict[str, Job] = {"compact": clean_job}

if __name__ == "__main__":
    sys.exit(serve_one_job(JOBS, RealDisk()))
