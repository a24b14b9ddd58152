"""Connections to brokers: the I/O thread, sockets, cluster metadata and coordinator lookup."""
