"""An OpenAPI 3.1 document of the server that driver ``webhook`` calls."""

from typing import Any

from flyball_contracts.records import SubjectState
from flyball_contracts.schema.json_schema import Schema, components
from flyball_contracts.webhook import Cell, Operation, Rejection, Submission

VERSION = "1.0.0"
_SCHEMAS = "#/components/schemas/"
_REFUSED = {
    "404": "There is no such thing; the body says so, so that another server's 404 is not taken for an answer.",
    "409": "The workload has another version: nothing was done. Flyball decides again on what it is now.",
    "422": "It cannot be done: nothing was done.",
}


def openapi() -> Schema:
    """The document as plain data."""
    _, schemas = components([Cell, SubjectState, Submission, Operation, Rejection], _SCHEMAS + "{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "A platform of your own for Flyball",
            "version": VERSION,
            "description": (
                "The actuator asks a server for the state of a workload, posts a decision under the version that it "
                "saw, and asks for the operation until it has ended. An operation's id is that of its decision. A "
                "server does each at most once, and remembers them for as long as a decision may live, over its own "
                "restarts too: a client that lost an answer asks for the id before it posts again. "
                "`flyball webhook URL --workload NAME` says whether a server keeps to this, and changes nothing."
            ),
        },
        "security": [{"token": []}],
        "paths": {
            "/v1/cell": {"get": _operation("The cell that the server runs.", {"200": ("It.", "Cell")})},
            "/v1/workloads/{workload}": {
                "parameters": [_parameter("workload")],
                "get": _operation(
                    "What the platform shows of a workload. `version` changes with whatever a decision depends on.",
                    {"200": ("Its state.", "SubjectState"), **_rejections("404")},
                ),
            },
            "/v1/operations": {
                "post": {
                    **_operation(
                        "Carry a decision out, or plan it where `dry_run` is set; do not wait for the effect.",
                        {
                            "200": ("Planned, or known already: nothing happens twice.", "Operation"),
                            "202": ("Taken on.", "Operation"),
                            **_rejections("404", "409", "422"),
                        },
                    ),
                    "requestBody": {"required": True, "content": _content("Submission")},
                },
            },
            "/v1/operations/{id}": {
                "parameters": [_parameter("id")],
                "get": _operation(
                    "How an operation is getting on; its last answer stays the same.",
                    {"200": ("The operation.", "Operation"), **_rejections("404")},
                ),
            },
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
        },
    }


def _operation(summary: str, answers: dict[str, tuple[str, str]]) -> Schema:
    return {
        "summary": summary,
        "responses": {
            status: {"description": text, "content": _content(kind)} for status, (text, kind) in answers.items()
        },
    }


def _rejections(*statuses: str) -> dict[str, tuple[str, str]]:
    return {status: (_REFUSED[status], "Rejection") for status in statuses}


def _content(kind: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _SCHEMAS + kind}}}


def _parameter(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
