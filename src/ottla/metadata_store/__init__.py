"""What brokers must agree on: one small tree of versioned nodes, with several engines behind it."""
