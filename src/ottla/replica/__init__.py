"""A replica on this broker: its log, its high watermark, and the requests that wait for it."""
