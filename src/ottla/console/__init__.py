"""The console: a cluster seen and steered in the browser (`ottla console`).

A collector per cluster (`collecting/`) keeps the newest picture (`picture.py`) and appends samples
(`series.py`) to the history (`history/`). Pages (`web/`, `data/`) and the JSON API (`api/`) read
these two and never wait for a cluster; what changes one goes through `access/`, which knows who may
do what and keeps the audit log. `alerts/` compares samples with rules. `app.py` composes them.
"""
