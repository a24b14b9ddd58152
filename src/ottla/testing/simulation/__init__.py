"""A whole cluster on one thread, from one seed: real brokers on simulated machines, and faults.

`run.ClusterRun(seed).run()` is one run; `shrinking.shrink` reduces the faults of a failing one. On
the command line: `ottla simulate --seed 7`.
"""
