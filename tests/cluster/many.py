"""Sessions on nodes, whose cells run until a file `stop` is there: `many.py FOLDER SESSIONS TOOL NODE=COMMAND...`.

Each cell adds a line to a file of its session there, and makes a call here, which is asked about: of a function of this
program where TOOL is "function", of a server where it is the server's program. FOLDER/*.progress has the least number of
cells that ended well in a session that goes on, of each node; and the names of sessions that had another end of a cell.
Prints as JSON what each session got. ray_many.py calls run() in actors of Ray.
"""

import itertools
import json
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
        self.answered, self.failed, self.late, self.lost = 0, {}, 0, ""
        self.opened_s = 0.0

    def note(self, kind: str, text: str) -> None:
        """In a file, which stays when this program is killed."""
        with Path(f"{self.folder / self.name}.{kind}").open("a") as f:
            f.write(f"{text}\n")

    def act(self, text: str) -> None:
        self.note("calls", text)
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
                        self.note("answers", done.value)
                        self.answered += 1
                    elif done.status == "error":
                        self.failed[i] = str(done.error)
                    else:
                        self.lost = f"{done.status}: {done.text}"
                        break
        except cellgate.CellgateError as e:
            self.lost = f"{type(e).__name__}: {e}"

    def got(self) -> dict:
        def numbers(kind: str) -> list[int]:
            path = Path(f"{self.folder / self.name}{kind}")
            lines = path.read_text().splitlines() if path.exists() else []
            return [int("".join(filter(str.isdigit, x))) for x in lines]

        files = {"answered": ".answers", "called": ".calls", "ran": ""}
        own = {n: getattr(self, n) for n in ("node", "failed", "late", "lost", "opened_s")}
        return own | {n: numbers(kind) for n, kind in files.items()}


def write_progress(file: Path, least: dict[str, int], lost: list[str]) -> None:
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"least": least, "lost": lost}) + "\n")
    new.rename(file)


def run(folder: Path, name: str, sessions: int, server: str, clients: dict[str, cellgate.Client]) -> list[dict]:
    """So many sessions of each client, by the names of their nodes; FOLDER/NAME.progress."""
    all_of = [One(n, f"{n}-{i}", folder, server) for n in clients for i in range(sessions)]
    threads = [threading.Thread(target=one.run, args=(clients[one.node],)) for one in all_of]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads) or not (folder / "stop").exists():
        least = {n: min((o.answered for o in all_of if o.node == n and not o.lost), default=0) for n in clients}
        write_progress(folder / f"{name}.progress", least, [o.name for o in all_of if o.lost or o.failed])
        time.sleep(0.2)
    for client in clients.values():
        client.close()
    return [o.got() for o in all_of]


if __name__ == "__main__":
    nodes = dict(a.split("=", 1) for a in sys.argv[4:])
    clients = {n: cellgate.Client(connect=words.split()) for n, words in nodes.items()}
    server = sys.argv[3].replace("function", "")
    print(json.dumps(run(Path(sys.argv[1]), "many", int(sys.argv[2]), server, clients)))
