"""The Python clients: producer, consumer and admin over one core, for Ottla and Apache Kafka alike.

The room imports `ottla.wire` alone; sockets, threads and time are its own.
"""
