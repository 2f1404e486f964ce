"""A link that breaks: `cutter.py FOLDER RELAY...` runs RELAY and ends both after as many bytes as the next file says.

FOLDER has files cut-N, made by the test: "DIRECTION BYTES", where DIRECTION is "to" or "from" the node, and "silent"
after "from" where only RELAY notices it. The first one that is left is used up. Without one nothing is cut. Each start
appends a line to FOLDER/starts.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

folder, relay = Path(sys.argv[1]), sys.argv[2:]
with open(folder / "starts", "a") as starts:
    starts.write("x\n")
cuts = sorted(folder.glob("cut-*"))
direction, left, silent = ("", 0, False)
if cuts:
    direction, count, *how = cuts[0].read_text().split()
    left, silent = int(count), bool(how)
    cuts[0].unlink()
p = subprocess.Popen(relay, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def copy(source: int, to: int, cut: int | None) -> None:
    while data := os.read(source, 65536 if cut is None else max(1, min(cut, 65536))):
        if cut is not None:
            if cut == 0:
                p.kill()
                if silent:
                    os.close(stdin)
                    os.close(source)
                    signal.pause()
                os._exit(1)
            cut -= len(data)
        while data:
            data = data[os.write(to, data) :]
    os.close(to)


assert p.stdin and p.stdout
stdin = os.dup(p.stdin.fileno())
to = threading.Thread(target=copy, args=(0, stdin, left if direction == "to" else None), daemon=True)
p.stdin.close()
to.start()
copy(p.stdout.fileno(), 1, left if direction == "from" else None)
os._exit(p.wait())
