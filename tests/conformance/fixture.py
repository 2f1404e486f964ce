"""What the fixture server of the conformance suite (fixture.c) does: the tools, resources and prompts that the suite names.

A row is a cell of execute_ipython_cell ("code"; its calls, forms, tasks and results are cellgate's), or a result as it
stands, perhaps after requests to the client. Those show that transport, sessions and dispatch carry it.
"""

from __future__ import annotations

from typing import Any

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
Row = dict[str, Any]


def form(**properties: dict[str, object]) -> str:
    """A cell that calls tests/asking_server.py, which asks its client, and so the suite, for a form."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    request = {"method": "elicitation/create", "params": {"message": "Please fill in", "requestedSchema": schema}}
    return f"from mcptools.asking import ask\nprint(ask.call({{'ask': [{request!r}]}}))"


def titles(*values: str) -> list[dict[str, str]]:
    return [{"const": v, "title": v.title()} for v in values]


CHOICES = ["option1", "option2", "option3"]
NAME, COLOR, OK = form(name={"type": "string"}), form(color={"type": "string"}), form(ok={"type": "boolean"})
TWO = f"import threading\nall = [threading.Thread(target=exec, args=({NAME!r}, {{}})) for _ in range(2)]\n"
TWO += "for t in all: t.start()\nfor t in all: t.join()"
# The tools of the suite do this, as cells.
CELLS: dict[str, str] = {
    "test_simple_text": "print('This is a simple text response for testing.')",
    "test_image_content": f"from IPython.display import Image\nimport base64\nImage(base64.b64decode({PNG!r}))",
    "test_error_handling": "raise ValueError('This tool intentionally returns an error for testing')",
    "test_tool_with_progress": "import time\nfor i in 0, 50, 100:\n    print(i)\n    time.sleep(0.5)",
    "test_elicitation": form(username={"type": "string"}, email={"type": "string"}),
    "test_elicitation_sep1034_defaults": form(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    ),
    "test_elicitation_sep1330_enums": form(
        untitledSingle={"type": "string", "enum": CHOICES},
        titledSingle={"type": "string", "oneOf": titles("value1", "value2")},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": CHOICES}},
        titledMulti={"type": "array", "items": {"anyOf": titles("value1", "value2")}},
    ),
    "test_input_required_result_request_state": OK,
    "test_input_required_result_tampered_state": OK,
    "test_input_required_result_multi_round": f"{NAME}\n{COLOR}",
    # Of tasks: a cell is one after two seconds, or when it asks.
    "slow_compute": "import time; time.sleep(arguments['seconds'] and arguments['seconds'] + 2.5)",
    "failing_job": "import time; time.sleep(3); 1 / 0",
    "confirm_delete": form(confirm={"type": "boolean"}),
    "multi_input": TWO,
}


def text(value: str) -> Row:
    return {"type": "text", "text": value}


def result(*content: Row) -> Row:
    return {"result": {"content": content}}


def embedded(uri: str, value: str, kind: str = "text/plain") -> Row:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": value}}


def question(message: str, **properties: dict[str, object]) -> Row:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(prompt: str) -> Row:
    messages = [{"role": "user", "content": text(prompt)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}}


TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
IMAGE, AUDIO = (
    {"type": t, "data": d, "mimeType": m} for t, d, m in (("image", PNG, "image/png"), ("audio", WAV, "audio/wav"))
)
USER_NAME = {"user_name": question("What is your name?", name={"type": "string"})}
ROOTS = {"method": "roots/list", "params": {}}
ALL = {**USER_NAME, "greeting": sampling("Generate a greeting"), "client_roots": ROOTS}
LOG = ["Tool execution started", "Tool processing data", "Tool execution completed"]
ROWS: dict[str, Row] = {
    **{name: {"code": code} for name, code in CELLS.items()},
    "test_audio_content": result(AUDIO),
    "test_embedded_resource": result(embedded("test://embedded-resource", "This is an embedded resource content.")),
    "test_multiple_content_types": result(
        text("Multiple content types test:"), IMAGE, embedded("test://mixed-content-resource", "{}", "application/json")
    ),
    "test_tool_with_logging": {"messages": LOG, **result(text("Three messages were logged."))},
    "test_logging_tool": {"messages": LOG, **result(text("Three messages were logged."))},
    # Its stream has begun when the suite leaves it, after 10 s, and comes back for the result.
    "test_reconnection": {"unasked": True, "messages": LOG[:1], "code": "import time; time.sleep(12)"},
    "test_sampling": {"requests": {"prompt": sampling("A test prompt")}, **result(text("LLM response: {answer}"))},
    "json_schema_2020_12_tool": result(text("Called")),
    "greet": result(text("Hello, {name}!")),
    "test_missing_capability": {"needs": {"sampling": {}}, **result(text("It is there."))},
    "test_input_required_result_elicitation": {"requests": USER_NAME, **result(text("Hello!"))},
    "test_streaming_elicitation": {"requests": USER_NAME, **result(text("Hello!"))},
    "test_input_required_result_sampling": {"requests": {"capital_question": ALL["greeting"]}, **result(text("Paris"))},
    "test_input_required_result_list_roots": {"requests": {"client_roots": ROOTS}, **result(text("Roots"))},
    "test_input_required_result_multiple_inputs": {"requests": ALL, **result(text("All were answered."))},
    "test_input_required_result_capabilities": {"requests": ALL, **result(text("All were answered."))},
    "failing_job": {"needs": TASKS, "code": CELLS["failing_job"]},
    "test_tool_with_task": {
        "requests": USER_NAME,
        "code": "import time; time.sleep(3); print(arguments['answers']['user_name']['content']['name'])",
    },
}
# As the suite has it.
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
PROMPTS: dict[str, list[Row]] = {
    "test_simple_prompt": [text("This is a simple prompt for testing.")],
    "test_prompt_with_arguments": [text("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")],
    "test_prompt_with_embedded_resource": [
        embedded("{resourceUri}", "Embedded resource content for testing."),
        text("Please process the embedded resource above."),
    ],
    "test_prompt_with_image": [IMAGE, text("Please analyze the image above.")],
    "test_input_required_result_prompt": [text("With that context")],
}
ARGUMENTS = {
    "test_prompt_with_arguments": [{"name": n, "description": n, "required": True} for n in ("arg1", "arg2")],
    "test_prompt_with_embedded_resource": [{"name": "resourceUri", "description": "A URI", "required": True}],
}
RESOURCES: dict[str, Row] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://template/123/data": {"mimeType": "application/json", "text": '{"id":"123","templateTest":true}'},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched"},
}
CONTEXT = {"user_context": question("What context should the prompt use?", context={"type": "string"})}


def described(name: str, **more: object) -> Row:
    return {"name": name, "description": f"A test: {name}", **more}


def every(value: Row) -> Row:
    """Rows of a method that answers all requests alike."""
    return {"rows": {"": {"result": value}}}


WRONG = {
    "result": {
        "content": [text("wrong")],
        "messages": [{"role": "user", "content": text("wrong")}],
        "contents": [{"uri": "test://wrong", "mimeType": "text/plain", "text": "wrong"}],
    }
}


def wrong(made: Row) -> Row:
    """The same lists, and one answer to all else: what passes with it judges no answer."""
    del made["methods"]["completion/complete"]
    for method in made["methods"].values():
        if "by" in method:
            method["rows"] = dict.fromkeys(method["rows"], WRONG)
    return made


def table() -> Row:
    tools = [
        described(name, inputSchema=SCHEMA if name == "json_schema_2020_12_tool" else {"type": "object"})
        for name in ROWS
    ]
    prompts = {n: {"result": {"messages": [{"role": "user", "content": c} for c in v]}} for n, v in PROMPTS.items()}
    prompts["test_input_required_result_prompt"]["requests"] = CONTEXT
    listed = [described(uri, uri=uri, mimeType=r["mimeType"]) for uri, r in RESOURCES.items() if "template" not in uri]
    reads = {uri: {"result": {"contents": [{"uri": uri, **r}]}} for uri, r in RESOURCES.items()}
    watched = {"by": "uri", "rows": {"test://watched-resource": {"result": {}}}}
    return {
        "capabilities": {"prompts": {}, "completions": {}},
        "tools": tools,
        "templates": [described("test", uriTemplate="test://template/{id}/data", mimeType="application/json")],
        "methods": {
            "tools/call": {"by": "name", "rows": ROWS},
            "resources/list": every({"resources": listed}),
            "resources/read": {"by": "uri", "rows": reads},
            "resources/subscribe": watched,
            "resources/unsubscribe": watched,
            "prompts/list": every({"prompts": [described(n, arguments=ARGUMENTS.get(n, [])) for n in PROMPTS]}),
            "prompts/get": {"by": "name", "rows": prompts},
            "completion/complete": every({"completion": {"values": ["paris", "park"], "total": 2, "hasMore": False}}),
        },
    }
