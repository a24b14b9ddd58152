"""TLS without sockets: Kafka's options, key and trust stores, contexts, one connection's engine."""
