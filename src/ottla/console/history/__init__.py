"""Samples kept over time in SQLite: every ten seconds of a day, minutes of a week, ten minutes of a
year; see `kept.py` for the whole, `tiers.py` for the figures."""
