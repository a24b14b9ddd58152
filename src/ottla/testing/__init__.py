"""For tests of what runs on Ottla, or on any Kafka."""
