"""Sessions on nodes, whose cells run until a file `stop` is there: `many.py FOLDER SESSIONS TOOL NODE=COMMAND...`.

Each cell adds a line to a file of its session there, and makes a call here, which is asked about: of a function of this
program where TOOL is "function", of a server where it is the server's program. FOLDER/progress has the least number of
cells that ended well in a session that goes on, of each node; and the names of sessions that had another end of a cell.
Prints as JSON what each session got.
"""

import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path

import cellgate

CELL = """
import os, time
from mcptools.{module} import {tool}
with open({name!r}, "a") as f: f.write("{i}\\n")
time.sleep(0.3)
{tool}.run(text="{i}")
{i}
"""


class One:
    def __init__(self, node: str, name: str, folder: Path, server: str) -> None:
        self.node, self.name, self.folder, self.server = node, name, folder, server
        self.answered, self.failed, self.called, self.late, self.lost = [], {}, [], 0, ""
        self.opened_s = 0.0

    def act(self, text: str) -> None:
        self.called.append(int(text))
        self.late += bool(self.lost)

    def add_tool(self, session: cellgate.Session) -> tuple[str, str]:
        if not self.server:
            session.functions({"act": self.act}, ask=True)
            return "host", "act"
        mark = {"MARK": f"{self.folder / self.name}.calls"}
        session.add_mcp_servers({"e": {"command": sys.executable, "args": [self.server], "env": mark}})
        return "e", "danger"

    def run(self, client: cellgate.Client) -> None:
        begun = time.monotonic()
        try:
            with cellgate.Session(self.folder, client=client, memory_bytes=256 << 20) as s:
                module, tool = self.add_tool(s)
                self.opened_s = time.monotonic() - begun
                for i in itertools.count():
                    if (self.folder / "stop").exists():
                        break
                    code = CELL.format(module=module, tool=tool, name=self.name, i=i)
                    done = s.run(code, approve=lambda _: True, timeout=120)
                    if done.status == "ok":
                        self.answered.append(int(done.value))
                    elif done.status == "error":
                        self.failed[i] = str(done.error)
                    else:
                        self.lost = f"{done.status}: {done.text}"
                        break
        except cellgate.CellgateError as e:
            self.lost = f"{type(e).__name__}: {e}"

    def got(self) -> dict:
        def numbers(path: Path) -> list[int]:
            return (
                [int("".join(filter(str.isdigit, x))) for x in path.read_text().splitlines()] if path.exists() else []
            )

        called = numbers(Path(f"{self.folder / self.name}.calls")) if self.server else self.called
        names = ("node", "answered", "failed", "late", "lost", "opened_s")
        return {**{n: getattr(self, n) for n in names}, "called": called, "ran": numbers(self.folder / self.name)}


def main(folder: Path, sessions: int, server: str, nodes: dict[str, str]) -> None:
    clients = {n: cellgate.Client(connect=words.split()) for n, words in nodes.items()}
    all_of = [One(n, f"{n}-{i}", folder, server) for n in nodes for i in range(sessions)]
    threads = [threading.Thread(target=one.run, args=(clients[one.node],)) for one in all_of]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads) or not (folder / "stop").exists():
        least = {n: min((len(o.answered) for o in all_of if o.node == n and not o.lost), default=0) for n in nodes}
        lost = [o.name for o in all_of if o.lost or o.failed]
        (folder / "progress.new").write_text(json.dumps({"least": least, "lost": lost}))
        os.replace(folder / "progress.new", folder / "progress")
        time.sleep(0.2)
    for client in clients.values():
        client.close()
    print(json.dumps([o.got() for o in all_of]))


main(
    Path(sys.argv[1]),
    int(sys.argv[2]),
    sys.argv[3].replace("function", ""),
    dict(a.split("=", 1) for a in sys.argv[4:]),
)
