"""Asks clusters and metrics endpoints, and makes pictures and samples of the answers."""
