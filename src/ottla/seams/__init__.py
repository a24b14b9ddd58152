"""The outside world, handed in: clock, chance, network, disk and background work.

Everything below is given these and never reaches past them, so the same broker runs on a real
machine and, with a simulated implementation beside each real one, inside a test from one seed.
"""
