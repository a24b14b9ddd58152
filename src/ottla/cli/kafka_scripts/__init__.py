"""Apache Kafka's scripts: their names, options and output, over our own functions."""
