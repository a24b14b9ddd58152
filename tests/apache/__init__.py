"""Apache Kafka 4.3.1 from Maven's jars: the executable specification that Ottla is held against."""
