"""A proxy in front of `cellgate mcp serve --http` for the server scenarios of the conformance suite of MCP.

It adds the server's token, which the suite has no option for, and calls execute_ipython_cell where the suite calls one of
its own tools: a cell does what that tool is to do. So the results, forms and progress that the suite judges are those of
cells. Nothing that the server sends is changed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


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
# What the tools of the suite do, as cells.
CELLS = {
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
    "test_input_required_result_elicitation": NAME,
    "test_input_required_result_request_state": OK,
    "test_input_required_result_tampered_state": OK,
    "test_input_required_result_multi_round": f"{NAME}\n{COLOR}",
    # Of tasks: a cell is one after two seconds, or when it asks.
    "greet": "print(f'Hello, {arguments[\"name\"]}!')",
    "slow_compute": "import time; time.sleep(arguments['seconds'] and arguments['seconds'] + 2.5)",
    "failing_job": "import time; time.sleep(3); 1 / 0",
    "confirm_delete": form(confirm={"type": "boolean"}),
    "multi_input": TWO,
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    port: int  # of the server
    token: str
    cells: dict[str, str]

    def body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with contextlib.suppress(ValueError, TypeError, KeyError):
            message = json.loads(data)
            code = self.cells[message["params"]["name"]]
            if "arguments[" in code:
                code = f"arguments = {message['params']['arguments']!r}\n{code}"
            message["params"] |= {"name": "execute_ipython_cell", "arguments": {"code": code}}
            if "Mcp-Name" in self.headers:
                self.headers.replace_header("Mcp-Name", "execute_ipython_cell")
            return json.dumps(message).encode()
        return data

    def relay(self, r: http.client.HTTPResponse) -> None:
        self.send_response_only(r.status)
        for name, value in r.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding"):
                self.send_header(name, value)
        if r.status in (202, 204):
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while data := r.read1(65536):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def pass_on(self) -> None:
        data = self.body()
        server = http.client.HTTPConnection("127.0.0.1", self.port)
        with contextlib.closing(server), contextlib.suppress(OSError):
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                    server.putheader(name, value)
            server.putheader("Authorization", f"Bearer {self.token}")
            if data:
                server.putheader("Content-Length", str(len(data)))
            server.endheaders(data)
            self.relay(server.getresponse())

    do_GET = do_POST = do_DELETE = pass_on

    def log_message(self, *_: object) -> None:
        pass


class Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """The suite leaves connections as it likes."""


def proxy(server_port: int, server_token: str, aliases: dict[str, str]) -> Proxy:
    class Own(Handler):
        port, token, cells = server_port, server_token, aliases

    return Proxy(("127.0.0.1", 0), Own)
