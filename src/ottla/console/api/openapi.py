"""The description of the API for tools: OpenAPI 3.1, made from the endpoints themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ottla import __version__

from .endpoint import PREFIX, Endpoint

PARAMETER = re.compile(r"{(\w+)(:path)?}")
ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "integer"},
                "message": {"type": "string"},
                "hint": {"type": "string"},
            },
            "required": ["code", "message"],
        }
    },
    "required": ["error"],
}
ERRORS = {
    "400": "A parameter is wrong.",
    "401": "No token, or one that ended.",
    "403": "No role allows it, or the console is read-only.",
    "404": "There is no such thing.",
    "422": "It cannot be done; nothing was changed.",
    "502": "The cluster, or a receiver, said no.",
    "503": "The cluster did not answer yet.",
}


def description(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        path = PREFIX + PARAMETER.sub(r"{\1}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ottla console",
            "version": __version__,
            "description": "Make a token on the console's page Tokens.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": ERROR},
            "responses": {
                code: {
                    "description": text,
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Error"}}
                    },
                }
                for code, text in ERRORS.items()
            },
        },
    }


def operation(endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": operation_id(endpoint),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name, _ in PARAMETER.findall(endpoint.path)
        ]
        + [
            {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
            for name, text in endpoint.query.items()
        ],
        "responses": {
            "200": {"description": "Done.", "content": {endpoint.media: {"schema": {}}}},
            **{code: {"$ref": f"#/components/responses/{code}"} for code in ERRORS},
        },
    }
    if endpoint.body:
        properties = {name: {"description": text} for name, text in endpoint.body.items()}
        schema = {"type": "object", "properties": properties}
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return found


def operation_id(endpoint: Endpoint) -> str:
    words = [
        each for each in re.split(r"[^A-Za-z0-9]+", PARAMETER.sub(r"\1", endpoint.path)) if each
    ]
    return "-".join([endpoint.method.lower(), *words])
