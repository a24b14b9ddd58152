"""Interceptors: functions from a batch to a batch, by Flume's types.

A filter keeps the position of a batch, so that a sink gets past what was left out.
"""
