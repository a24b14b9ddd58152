"""Channels, one file per type."""
