"""Files on disk between Ottla and Apache Kafka: each reads what the other wrote."""
