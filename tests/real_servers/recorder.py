"""Runs a server over stdio and appends each tools/call that it is sent to a file. usage: recorder.py FILE COMMAND..."""

import json
import subprocess
import sys

with open(sys.argv[1], "ab", buffering=0) as record:
    server = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, bufsize=0)
    for line in sys.stdin.buffer:
        if json.loads(line).get("method") == "tools/call":
            record.write(line)
        server.stdin.write(line)
    server.stdin.close()
    sys.exit(server.wait())
