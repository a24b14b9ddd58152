"""Connections: bytes of clients to the dispatcher, answers back in order, within limits."""
