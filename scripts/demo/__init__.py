"""`make demo`: people use a shop, Spark counts what they do, a process dies, no count is wrong."""
