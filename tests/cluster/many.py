"""Sessions on nodes, whose cells run until a file `stop` is there: `many.py FOLDER SESSIONS DETACH NODE=COMMAND...`.

Each cell adds a line to a file of its session there, and calls a function here, which is asked about. FOLDER/progress has
the least number of answers of a session of each node, and who has ended. Prints as JSON what each session got.
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
from mcptools.host import act
with open({name!r}, "a") as f: f.write("{i}\\n")
time.sleep(0.3)
act.run(i={i})
"""


class One:
    def __init__(self, node: str, name: str) -> None:
        self.node, self.name = node, name
        self.answered, self.called, self.late, self.lost = [], [], 0, ""
        self.opened_s = 0.0

    def act(self, i: int) -> int:
        self.called.append(i)
        self.late += bool(self.lost)
        return i

    def run(self, client: cellgate.Client, folder: Path) -> None:
        begun = time.monotonic()
        try:
            with cellgate.Session(folder, client=client, memory_bytes=256 << 20) as s:
                s.functions({"act": self.act}, ask=True)
                self.opened_s = time.monotonic() - begun
                for i in itertools.count():
                    if (folder / "stop").exists():
                        break
                    done = s.run(CELL.format(name=self.name, i=i), approve=lambda _: True, timeout=120)
                    if done.status != "ok":
                        self.lost = done.status
                        break
                    self.answered.append(int(done.value))
        except cellgate.CellgateError as e:
            self.lost = f"{type(e).__name__}: {e}"


def main(folder: Path, sessions: int, detach: float, nodes: dict[str, str]) -> None:
    clients = {n: cellgate.Client(connect=words.split(), detach=detach) for n, words in nodes.items()}
    all_of = [One(n, f"{n}-{i}") for n in nodes for i in range(sessions)]
    threads = [threading.Thread(target=one.run, args=(clients[one.node], folder)) for one in all_of]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads) or not (folder / "stop").exists():
        least = {n: min(len(o.answered) for o in all_of if o.node == n) for n in nodes}
        lost = [o.name for o in all_of if o.lost]
        (folder / "progress.new").write_text(json.dumps({"least": least, "lost": lost}))
        os.replace(folder / "progress.new", folder / "progress")
        time.sleep(0.2)
    for client in clients.values():
        client.close()
    ran = {
        o.name: [int(x) for x in (folder / o.name).read_text().split()] for o in all_of if (folder / o.name).exists()
    }
    print(json.dumps([{**vars(o), "ran": ran.get(o.name, [])} for o in all_of]))


main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), dict(a.split("=", 1) for a in sys.argv[4:]))
