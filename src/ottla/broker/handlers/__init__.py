"""One file per API, named as in `wire/api`.

Each has `handle(request, context)`; it returns the response, or something that will become one
(`Pending`, an awaitable), or None when nothing is to be sent. A file may also have
`failure(request, error_code, context)`, the answer when the handler itself fails; without it a
response class with a top-level `error_code` is used, and without that the connection closes.
"""
