"""JSON Schemas and an AsyncAPI document, generated from the records, for readers in any language."""

from flyball_contracts.schema.asyncapi import asyncapi as asyncapi
from flyball_contracts.schema.files import stale as stale, write as write
from flyball_contracts.schema.json_schema import json_schemas as json_schemas
