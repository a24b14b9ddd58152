"""Ottla beside Apache Kafka on the same machine, in the same run: ratios, not absolute figures."""
