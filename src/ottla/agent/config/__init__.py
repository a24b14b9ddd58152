"""Descriptions of agents: Flume's property files, the same as TOML, one schema and one validator.

`reading.py` reads a file into entries, `substitution.py` puts `${…}` in, `check.py` makes an
`AgentDescription` of them with the types of `schema*.py`; `convert.py` writes the other format.
"""
