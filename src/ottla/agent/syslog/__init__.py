"""Syslog: messages of RFC 3164 and 5424, and how RFC 6587 frames them on a connection."""
