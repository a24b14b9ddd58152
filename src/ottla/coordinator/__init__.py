"""Coordinators: consumer groups, committed offsets, transactions. Their whole state is a log."""
