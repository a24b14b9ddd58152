"""Samples over time in SQLite, rolled up."""
