"""The same raw requests to Apache Kafka 4.3.1 and to Ottla, and the answers side by side."""
