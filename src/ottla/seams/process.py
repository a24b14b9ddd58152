"""This process as the operating system sees it: processor time, memory, descriptors.

Linux tells through `/proc`; elsewhere what `resource` knows stands in, and what nobody knows is -1.
"""

import os
import sys
import time

STARTED_S = time.time()


def cpu_s() -> float:
    """Processor seconds used so far, in the program and in the kernel for it."""
    times = os.times()
    return times.user + times.system


def memory_bytes() -> int:
    """Memory in use (resident); the largest so far where the present is not told."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest * 1024


def open_descriptors() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder)) - 1
        except OSError:
            continue
    return -1


def raise_descriptor_limit() -> int:
    """Asks for as many descriptors as the system grants, and says how many that are."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == hard:
            return soft
        # macOS has no limit on paper and refuses what it cannot give.
        wanted = hard if hard != resource.RLIM_INFINITY else max(soft, 10_240)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    except (ImportError, OSError, ValueError):
        return -1
