"""Share groups for callers: `ShareConsumer` (KIP-932), and `Queue` for who wants just a queue."""
