"""The ingest agent: sources, channels and sinks, described by Flume's property files.

`config/` reads and checks a description; `runner.py` starts what it describes. Events travel in
batches (`events.py`) from a source (`sources/`) through interceptors and a selector (`output.py`)
into channels (`channels/`), from where a sink (`sinks/`) delivers them (`delivery.py`). A source
that can read again says with each batch where it continues; a sink keeps that position with what it
delivered (`positions.py`), in the same transaction where it can: then each event arrives once.

Brokers are reached through `ottla.client` alone.
"""
