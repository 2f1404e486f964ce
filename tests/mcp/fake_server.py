"""An MCP server over stdio with every bad habit, for the tests of the client. Standard library only.

argv[1] is a JSON object of habits; every line read is appended raw to habits["log"]. The tools it lists are those of
TOOLS; `call` implements them.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HABITS = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
TOOLS = [
    "echo", "hang", "exit", "exit_with_words", "wrong_id", "string_id", "huge", "crlf", "result_text", "rpc_error",
    "error_null_id", "ask_client", "garbage", "batch", "close_stdout", "not_object", "notify", "big", "is_error",
    "null_error", "echo_late", "twice", "add_tool", "close_stdin",
    "no_result", "no_version", "flood", "bytes", "half_exit", "half_hang", "hold", "raw",
]  # fmt: skip
out = sys.stdout.buffer
PROMPTS = ["greet", "tools/call", "hang"]
lists: list[tuple[object, object]] = []  # id and cursor of those that were not answered yet
listed = 0
released = False
held: list[tuple[object, dict]] = []  # ids and arguments of calls of hold that were not answered yet
peak = 0  # of them at once


def write(data: bytes) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})  # their handlers write, too
    out.write(data)
    out.flush()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def send(message: object, end: bytes = b"\n") -> None:
    write(json.dumps(message).encode() + end)


def answer(ident: object, result: object) -> None:
    send({"jsonrpc": "2.0", "id": ident, "result": result})


def text(s: str) -> dict:
    return {"content": [{"type": "text", "text": s}]}


def words(lines: int) -> None:
    for i in range(lines):
        print(f"word {i} {'x' * 60}", file=sys.stderr, flush=True)


def note(line: bytes) -> None:
    if log := HABITS.get("log"):
        with open(log, "ab") as f:
            f.write(line)


def read() -> bytes:
    line = sys.stdin.buffer.readline()
    note(line)
    return line


def discover(ident: object) -> None:
    """A legacy server: it does not know the method, whatever it makes of that."""
    how = HABITS.get("discover", "error")
    if how == "error":
        send({"jsonrpc": "2.0", "id": ident, "error": {"code": -32601, "message": "Method not found"}})
    elif how == "exit":
        os._exit(1)
    elif how.startswith("{"):
        write(how.encode("latin-1").replace(b"ID", str(ident).encode()) + b"\n")


def initialize(ident: object) -> None:
    how = HABITS.get("initialize", "ok")
    if how == "hang":
        time.sleep(600)
    elif how == "error":
        send({"jsonrpc": "2.0", "id": ident, "error": {"code": -32602, "message": "no such version here"}})
    elif how == "exit":
        words(HABITS.get("words", 0))
        print("cannot open the database", file=sys.stderr, flush=True)
        os._exit(3)
    elif how == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how.startswith("{"):
        write(how.encode("latin-1").replace(b"ID", str(ident).encode()) + b"\n")
    elif how == "garbage":
        for i in range(2000):
            write(b"Starting up %d ...\n\xff\xfe\x00 {not json}\n" % i)
        time.sleep(600)
    else:
        if how == "noisy":
            write(b'Welcome to the server!\r\n\n{"level": "info"}\n[1, 2\n')
        version = HABITS.get("version", "2025-11-25")
        changes = {"listChanged": not HABITS.get("silent")}
        capabilities = {} if HABITS.get("no_tools") or HABITS.get("undeclared") else {"tools": changes}
        capabilities.update({name: changes for name in HABITS.get("offers", [])})
        answer(ident, {"protocolVersion": version, "capabilities": capabilities,
                       "serverInfo": {"name": "fake", "version": "1"}})  # fmt: skip


def tool(name: str) -> dict:
    return {"name": name, "description": f"The tool {name}.", "inputSchema": {"type": "object"}}


def release(*_: object) -> None:
    """Answer the lists that wait, or the next one: the signal may come before that is read."""
    global released
    released = not lists
    while lists:
        ident, cursor = lists.pop(0)
        if HABITS["list_later"] == "error" and listed == 2:
            refuse_list(ident)
        else:
            answer_list(ident, cursor)


def release_held(*_: object) -> None:
    """Answer the oldest call of hold."""
    if held:
        ident, arguments = held.pop(0)
        answer(ident, text(json.dumps({**arguments, "peak": peak})))


def hold(ident: object, arguments: dict) -> None:
    """Answer on SIGUSR2. The log shows it once it is held."""
    global peak
    held.append((ident, arguments))
    peak = max(peak, len(held))
    note(b"held\n")


def list_tools(ident: object, cursor: object) -> None:
    """At once, or with the habit list_later all but the first on SIGUSR1.

    "fickle" announces a change every time, "error" refuses the first of them.
    """
    global listed
    listed += 1
    if listed > 1 and (later := HABITS.get("list_later")):
        if later == "fickle":
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        lists.append((ident, cursor))
        if released:
            release()
    else:
        answer_list(ident, cursor)


def refuse_list(ident: object) -> None:
    send({"jsonrpc": "2.0", "id": ident, "error": {"code": -32000, "message": "the list is closed"}})


def answer_list(ident: object, cursor: object) -> None:
    names = [*TOOLS, *HABITS.get("more", []), *(f"tool_{i}" for i in range(HABITS.get("many", 0)))]
    how = HABITS.get("list", "one")
    if HABITS.get("no_tools"):
        send({"jsonrpc": "2.0", "id": ident, "error": {"code": -32601, "message": "Method not found"}})
    elif how == "one":
        answer(ident, {"tools": [tool(n) for n in names], "nextCursor": None} if HABITS.get("null_cursor")
               else {"tools": [tool(n) for n in names]})  # fmt: skip
    elif how == "pages":
        # Cursors of all kinds: "" is a valid one.
        at = {None: 0, "": 1, 'x\u00e9"\\': 2}.get(cursor, 3)
        following = ["", 'x\u00e9"\\', "last"]
        result: dict = {"tools": [tool(n) for n in names[at::4]]}
        if at < 3:
            result["nextCursor"] = following[at]
        answer(ident, result)
    elif how == "same_cursor":
        answer(ident, {"tools": [tool("echo")], "nextCursor": "again"})
    elif how == "endless":
        answer(ident, {"tools": [], "nextCursor": str(int(cursor or 0) + 1)})
    elif how == "error":
        refuse_list(ident)
    elif how == "hang":
        time.sleep(600)
    elif how == "not_array":
        answer(ident, {"tools": "none"})
    elif how == "raw":
        write(b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (ident, HABITS["raw"].encode()))


def call(message: dict, line: bytes) -> None:
    ident, name = message["id"], message["params"]["name"]
    arguments = message["params"]["arguments"]
    if name == "echo":
        answer(ident, text(json.dumps(arguments)))
    elif name == "echo_late":
        if arguments.get("changed"):
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        for _ in range(arguments["seconds"] if arguments.get("says") else 0):
            time.sleep(1)
            send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": arguments["says"]}})
        if not arguments.get("says"):
            time.sleep(arguments["seconds"])
        answer(ident, text("late"))
    elif name == "hang":
        pass
    elif name == "hold":
        hold(ident, arguments)
    elif name == "exit":
        words(arguments.get("words", 0))
        os._exit(arguments.get("status", 7))
    elif name == "exit_with_words":
        print("fatal: token is " + os.environ.get("SECRET", "none"), file=sys.stderr)
        print("last \x1b[31mwords\x1b[0m", file=sys.stderr, flush=True)
        os._exit(4)
    elif name == "wrong_id":
        answer(ident + 1000, text("not yours"))
    elif name == "string_id":
        answer(str(ident), text("not yours"))
    elif name == "no_result":
        send({"jsonrpc": "2.0", "id": ident})
    elif name == "no_version":
        send({"id": ident, "result": text("no version")})
    elif name == "huge":
        size = arguments["size"]
        write(b'{"jsonrpc":"2.0","id":%d,"result":{"x":"' % ident)
        while size > 0:
            write(b"a" * min(size, 1 << 20))
            size -= 1 << 20
        write(b'"}}\n')
    elif name == "raw":  # "ID" is the call's own; then what the next request is, or the answer
        write(arguments["line"].encode("latin-1").replace(b"ID", str(ident).encode()) + b"\n")
        if then := arguments.get("then"):
            answer(ident, text(read().decode() if then == "read" else then))
    elif name == "crlf":
        send({"jsonrpc": "2.0", "id": ident, "result": text("crlf")}, end=b"\r\n")
    elif name == "result_text":
        write(b'{"result":%s,"id":%d,"jsonrpc":"2.0"}\n' % (arguments["text"].encode(), ident))
    elif name == "rpc_error":
        send({"jsonrpc": "2.0", "id": ident, "error": {"code": -32602, "message": "bad", "data": {"x": [1]}}})
    elif name == "error_null_id":
        send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "cannot parse"}})
    elif name == "ask_client":
        send({"jsonrpc": "2.0", "id": "p-1", "method": "ping"})
        pong = read()
        send({"jsonrpc": "2.0", "id": 77, "method": "sampling/createMessage", "params": {}})
        refusal = read()
        answer(ident, text(pong.decode() + refusal.decode()))
    elif name == "bytes":
        lines = [{"jsonrpc": "2.0", "method": "notifications/progress"}, {"id": ident, "result": text("in bytes"), "jsonrpc": "2.0"}]
        for byte in "".join(json.dumps(line) + "\r\n\n" for line in lines).encode():
            write(bytes([byte]))
            time.sleep(0.001)
    elif name in ("half_exit", "half_hang"):
        line = json.dumps({"id": ident, "result": text("half"), "jsonrpc": "2.0"}).encode()
        write(line if name == "half_hang" else line[:-2])  # without the line's end
        if name == "half_exit":
            os._exit(3)
    elif name == "garbage":
        write(b'debug: calling\n{"half": \n\x00\x01\n\xc3\x28\n{}\n[]\n[1]\n{"jsonrpc":"2.0"}\n')
        answer(ident, text("after garbage"))
    elif name == "batch":
        send([{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}},
              {"jsonrpc": "2.0", "id": ident, "result": text("batched")}])  # fmt: skip
    elif name == "close_stdout":
        os.close(1)
        time.sleep(600)
    elif name == "close_stdin":
        os.close(0)
        time.sleep(600)
    elif name == "not_object":
        answer(ident, [1, 2])
    elif name == "notify":
        for method in ("message", "progress", "tools/list_changed", "cancelled", "resources/updated"):
            send({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": {"data": "x\n\x1b[2J"}})
        answer(ident, text("notified"))
    elif name == "add_tool":
        TOOLS.append(arguments["name"])
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        answer(ident, text("added"))
    elif name == "flood":
        for _ in range(arguments["times"]):
            write((json.dumps(arguments["message"]) + "\n").encode() * 1000)
        answer(ident, text("flooded"))
    elif name == "big":
        if arguments.get("pieces"):  # no long string
            answer(ident, {"content": [], "x": ["b" * 1000] * (arguments["size"] // 1000)})
        else:
            answer(ident, text("b" * arguments["size"]))
    elif name == "is_error":
        answer(ident, {"isError": True, **text("it went wrong")})
    elif name == "null_error":
        send({"jsonrpc": "2.0", "id": ident, "result": text("fine"), "error": None})
    elif name == "twice":
        answer(ident, text("first"))
        answer(ident, text("second"))
    else:
        answer(ident, text(f"the new tool {name}"))


def list_other(ident: object, method: str, cursor: object) -> None:
    """Of resources, templates or prompts: a page for each, and what HABITS["listed"] says."""
    member, items = {
        "resources/list": ("resources", [{"uri": f"fake://{n}", "name": n} for n in ("text", "blob", "big")]),
        "resources/templates/list": ("resourceTemplates", [{"uriTemplate": "fake://{name}", "name": "any"}]),
        "prompts/list": ("prompts", [{"name": n, "arguments": [{"name": "who", "required": True}] if n == "greet" else []}
                                     for n in PROMPTS]),
    }[method]  # fmt: skip
    how = HABITS.get("listed", "pages")
    at = int(cursor or 0)
    if how == "fickle":
        send({"jsonrpc": "2.0", "method": f"notifications/{member}/list_changed"})
        answer(ident, {member: []})
    elif how == "hang":
        pass
    elif how == "error" or (how == "no_templates" and member == "resourceTemplates"):
        code = -32601 if how == "no_templates" else -32000
        send({"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": "not listed"}})
    elif how == "endless":
        answer(ident, {member: [], "nextCursor": str(at + 1)})
    elif how == "same_cursor":
        answer(ident, {member: [], "nextCursor": "1"})
    elif how == "long":
        answer(ident, {member: [{"uri": "fake://long", "name": "n" * (1 << 20)}], "nextCursor": str(at + 1)})
    elif how == "not_array":
        answer(ident, {member: "none"})
    else:
        answer(ident, {member: items[at : at + 1], **({"nextCursor": str(at + 1)} if at + 1 < len(items) else {})})


def read_resource(ident: object, uri: str) -> None:
    name = uri.removeprefix("fake://")
    one = {"uri": uri, "mimeType": "text/plain"}
    if name == "blob":
        answer(ident, {"contents": [{"uri": uri, "mimeType": "image/png", "blob": "iVBORw0="}]})
    elif name == "big":
        answer(ident, {"contents": [{**one, "text": "b" * (3 << 20)}]})
    elif name == "missing":
        send({"jsonrpc": "2.0", "id": ident, "error": {"code": -32002, "message": "Resource not found"}})
    elif name == "broken":
        answer(ident, [1])
    elif name == "exit":
        os._exit(7)
    elif name == "change":
        for kind in ("resources", "prompts"):
            send({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})
        answer(ident, {"contents": [{**one, "text": "changed"}]})
    elif name != "hang":
        PROMPTS.append(name)
        answer(ident, {"contents": [{**one, "text": f"the text of {name}"}]})


def get_prompt(ident: object, name: str, arguments: object) -> None:
    if name != "hang":
        said = f"{name} with {json.dumps(arguments)}"
        content = {"type": "text", "text": said}
        answer(ident, {"description": "a greeting", "messages": [{"role": "user", "content": content}]})


def main() -> None:
    if HABITS.get("at_start") == "exit":
        print("no configuration", file=sys.stderr, flush=True)
        os._exit(1)
    if HABITS.get("at_start") == "count":
        with open(HABITS["count"], "a") as f:
            f.write("x")
        os._exit(1)
    if HABITS.get("list_later"):
        signal.signal(signal.SIGUSR1, release)
    signal.signal(signal.SIGUSR2, release_held)
    if HABITS.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if saved := HABITS.get("on_sigterm"):
        signal.signal(signal.SIGTERM, lambda *_: (Path(saved).write_text("asked to end"), os._exit(0)))
    for _ in range(HABITS.get("orphans", 0)):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(0.1)
            os._exit(0)
        os.wait()
    if path := HABITS.get("pids"):
        # A grandchild as npx leaves them; with "detach" one in a session of its own.
        pids = [os.getpid()]
        if HABITS.get("grandchild"):
            code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
            child = subprocess.Popen(
                [sys.executable, "-S", "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=None if HABITS.get("hold_pipes") else subprocess.DEVNULL,
                stderr=None if HABITS.get("hold_pipes") else subprocess.DEVNULL,
                start_new_session=bool(HABITS.get("detach")),
            )
            pids.append(child.pid)
        with open(path, "w") as f:
            f.write(json.dumps(pids) + "\n")
    if HABITS.get("show"):
        seen = {"env": dict(os.environ), "cwd": os.getcwd(), "fds": sorted(os.listdir("/proc/self/fd"))}
        with open(HABITS["show"], "w") as f:
            json.dump(seen, f)
    if HABITS.get("stderr") == "forever" and os.fork() == 0:
        while True:
            os.write(2, b"y" * 200 + b"\n")
    while line := read():
        message = json.loads(line)
        method = message.get("method")
        if method == "server/discover":
            discover(message["id"])
        elif method == "initialize":
            initialize(message["id"])
        elif method == "tools/list":
            list_tools(message["id"], message.get("params", {}).get("cursor"))
        elif method == "tools/call":
            call(message, line)
            if "idle" in HABITS:
                time.sleep(0.1)
                os._exit(HABITS["idle"])
        elif method == "ping":
            answer(message["id"], {})
        elif method in ("resources/list", "resources/templates/list", "prompts/list"):
            list_other(message["id"], method, message["params"].get("cursor"))
        elif method == "resources/read":
            read_resource(message["id"], message["params"]["uri"])
        elif method == "prompts/get":
            get_prompt(message["id"], message["params"]["name"], message["params"].get("arguments"))
    if HABITS.get("ignore_eof"):
        time.sleep(600)


main()
