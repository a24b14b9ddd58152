"""The same as JSON below /api/v1: for scripts with a token, and for the console's own pages.

An `Endpoint` is a route and its description at once, so that `/api/v1/openapi.json` has every route
there is. Who may do what is asked where the pages ask it; answers hold what the pages show.
"""
