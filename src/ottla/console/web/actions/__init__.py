"""What users do to a cluster, each an `Action` of `acting.py`."""
