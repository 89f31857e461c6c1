"""The OpenAPI document: valid, true to the service, and fit to be taken for tools."""

from __future__ import annotations

import copy
import re
from typing import Any
from urllib.parse import quote

import pytest

from rag_assets_tests.service.live import HIDDEN, Live

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


@pytest.fixture(scope="module")
def document(live: Live) -> dict[str, Any]:
    """The document as anybody gets it, without a token."""
    answer = live.get("/openapi.json", None)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    value: dict[str, Any] = answer.json()
    return value


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Operation by ``METHOD path``."""
    return {
        f"{method.upper()} {path}": operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    }


def test_the_document_is_valid_openapi_3_1(document):
    """By the schema that the OpenAPI Initiative publishes."""
    definitions = pytest.importorskip("schemathesis.specs.openapi.definitions")
    definitions.OPENAPI_31_VALIDATOR.validate(document)
    assert document["openapi"].startswith("3.1.")
    assert document["info"]["title"]
    assert document["info"]["description"]


def test_every_reference_leads_somewhere(document):
    """And no schema of a request has one: some clients do not follow them."""
    names = set(document["components"]["schemas"])
    for reference in re.findall(r"'\$ref': '([^']+)'", str(document)):
        assert reference.removeprefix("#/components/schemas/") in names
    for operation in operations(document).values():
        assert "$ref" not in str(operation.get("requestBody", ""))


def test_every_schema_of_a_request_and_an_answer_is_closed(document):
    """Unknown keys are refused, and none is answered."""
    bodies = [
        operation["requestBody"]["content"]["application/json"]["schema"]
        for operation in operations(document).values()
        if "requestBody" in operation
    ]
    for schema in (*bodies, *document["components"]["schemas"].values()):
        assert schema["additionalProperties"] is False


def test_the_limits_of_the_configuration_stand_in_the_document(live: Live, document):
    """A client can know them without trying."""
    config = live.project.config
    for path in ("/search", "/context"):
        body = document["paths"][path]["post"]["requestBody"]
        properties = body["content"]["application/json"]["schema"]["properties"]
        assert properties["query"]["maxLength"] == config.retrieval.max_query_characters
        assert properties["k"]["anyOf"][0] == {
            "type": "integer", "minimum": 1, "maximum": config.service.max_k,
        }  # fmt: skip


def test_all_but_the_health_needs_a_token(live: Live, document):
    """The document says so, and it is so."""
    assert document["security"] == [{"token": []}]
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for name, operation in operations(document).items():
        method, path = name.split()
        answer = live.client.request(method, path.replace("{", "").replace("}", ""))
        if operation.get("security") == []:
            assert path == "/health"
        else:
            assert answer.status_code == 401
            assert "401" in operation["responses"]


def test_the_document_tells_nothing_of_the_index(live: Live):
    """Anybody can read it: no sources, no paths."""
    text = live.get("/openapi.json", None).text
    assert HIDDEN not in text
    assert str(live.project.folder) not in text


# Open WebUI reads /openapi.json and makes a tool of each operation that has an operationId.


def resolved(schema: Any, document: dict[str, Any]) -> Any:
    """A schema as that client sees it: references followed in properties and items only."""
    if "$ref" in schema:
        node: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            node = node.get(part, {})
        return resolved(node, document)
    schema = copy.deepcopy(schema)
    for name, inner in schema.get("properties", {}).items():
        schema["properties"][name] = resolved(inner, document)
    if "items" in schema:
        schema["items"] = resolved(schema["items"], document)
    return schema


def tools_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools such a client offers to a model: name, description, parameters."""
    tools = []
    for operation in operations(document).values():
        if not operation.get("operationId"):
            continue
        properties: dict[str, Any] = {}
        required: list[str] = []
        for parameter in operation.get("parameters", []):
            schema = parameter.get("schema", {})
            properties[parameter["name"]] = {
                "type": schema.get("type", "string"),
                "description": schema.get("description") or parameter.get("description", ""),
            }
            required += [parameter["name"]] if parameter.get("required") else []
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        if "schema" in body:
            schema = resolved(body["schema"], document)
            properties |= schema.get("properties", {})
            required += schema.get("required", [])
        tools.append(
            {
                "name": operation["operationId"],
                "description": operation.get("description", operation.get("summary", "")),
                "parameters": {"type": "object", "properties": properties, "required": required},
            }
        )
    return tools


def test_a_tool_server_client_gets_four_tools_a_model_can_use(document):
    """Each with a name, a description and described parameters, none behind a reference."""
    tools = {tool["name"]: tool for tool in tools_of(document)}
    assert set(tools) == {"search_documents", "build_context", "get_document", "get_stats"}
    for name, tool in tools.items():
        assert re.fullmatch(r"[a-z_]{1,64}", name)
        assert 40 < len(tool["description"]) < 1024
        for parameter in tool["parameters"]["properties"].values():
            assert parameter["description"]
        assert "$ref" not in str(tool)
        assert "#/" not in str(tool)
    assert tools["search_documents"]["parameters"]["required"] == ["query"]
    assert tools["build_context"]["parameters"]["required"] == ["query"]
    assert tools["get_document"]["parameters"]["required"] == ["source", "path"]
    assert tools["get_stats"]["parameters"]["properties"] == {}


def test_a_tool_call_with_the_defaults_of_its_parameters_is_answered(live: Live, document):
    """A model that fills in what the schema says gets an answer."""
    for tool, path in (("search_documents", "/search"), ("build_context", "/context")):
        properties = next(t for t in tools_of(document) if t["name"] == tool)["parameters"]
        filled = {
            name: schema["default"]
            for name, schema in properties["properties"].items()
            if "default" in schema
        }
        answer = live.post(path, {**filled, "query": "badge"})
        assert answer.status_code == 200, answer.text


def called(live: Live, document: dict[str, Any], name: str, values: dict[str, Any]) -> Any:
    """A tool call as that client sends it: path filled and quoted, the rest as JSON."""
    for title, operation in operations(document).items():
        if operation.get("operationId") != name:
            continue
        method, path = title.split()
        for key, value in values.items():
            path = path.replace(f"{{{key}}}", quote(str(value), safe=""))
        body = {"json": values} if "requestBody" in operation else {}
        answer = live.client.request(method, path, headers=live.headers("reader"), **body)
        assert answer.status_code == 200, answer.text
        return answer.json()
    raise AssertionError(name)


def test_each_tool_can_be_called(live: Live, document):
    """From a question to a hit to its whole document."""
    found = called(live, document, "search_documents", {"query": "congés payés", "k": 1})
    [hit] = found["hits"]
    assert hit["path"] == "rh/congés.md"
    place = {"source": hit["source"], "path": hit["path"]}
    whole = called(live, document, "get_document", place)
    assert hit["content"] in [chunk["content"] for chunk in whole["chunks"]]
    assert called(live, document, "build_context", {"query": "congés payés"})["citations"]
    assert called(live, document, "get_stats", {})["documents"] == 3
