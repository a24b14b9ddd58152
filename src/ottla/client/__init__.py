"""The Python clients: producer, consumer and admin over one core, for Ottla and Apache Kafka alike.

`network/` connects to brokers; `codec/` turns records into bytes and back; `producer/`, `consumer/`
and `admin/` are the three clients. What they share (config, errors, structs, serializers,
interceptors, assignors) stands here. The package imports `ottla.wire` alone; sockets, threads and
time are its own.
"""
