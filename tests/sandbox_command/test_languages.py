"""What cells and programs attempt in the words of bash and node (data/language_attempts.json), in a kernel and as a command.

Each is made twice: on what is outside, which must be refused, and on the same things inside, where it must succeed.
An attempt is the code for both, or a pair of codes where nothing inside is alike. It succeeds if the list of commands
ends with the status 0, or the function returns true. Names in the code:

    S   a folder: files secret (SECRET), script, code.json, code.cjs, and the program tool
    W   a folder in which attempts write, and its file plain (orig)
    D   a folder of the attempt's own
    N   a file's name, which is protected in a workspace
    P, U, K   the port of a TCP server and that of a UDP server, which answer, and the number of a process
    L   a library whose constructor opens the file of the variable CG_FILE, and ends the process with the status 7 if it can
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from folders import names_below
from processes import eventually
from rounds import with_peers
from tables import cases, read_table

from .conftest import Box

SERVER = Path(__file__).parent / "attempt_server.py"
ATTEMPTS = read_table(Path(__file__).parent / "data/language_attempts.json")
BASH, NODE = cases(ATTEMPTS["bash"]), cases(ATTEMPTS["node"])
LIBRARY = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void attempt(void)
{
        const char *name = getenv("CG_FILE");

        if (name && open(name, O_RDONLY) >= 0)
                _exit(7);
}
"""

NODE_BEGIN = """
const fs = require('node:fs'), fsp = fs.promises, path = require('node:path'), os = require('node:os');
const net = require('node:net'), http = require('node:http'), dgram = require('node:dgram');
const vm = require('node:vm'), v8 = require('node:v8');
const { once } = require('node:events'), { promisify } = require('node:util');
const { Worker } = require('node:worker_threads'), { spawn, execFileSync } = require('node:child_process');
const QUIET = { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] };
const using_ = (h, f) => f(h).finally(() => h.close());
const inFolder = (folder, f) => {
  const before = process.cwd();
  process.chdir(folder);
  try { return f(); } finally { process.chdir(before); }
};
const worker = (code) => new Promise((y, n) => {
  const text = `(async () => require('worker_threads').parentPort.postMessage(${code}))()`;
  new Worker(text, { eval: true }).on('message', y).on('error', n);
});
// A wrong call of what is internal aborts node.
const SYNC = parseInt(process.versions.node) < 20 ? ', undefined, {}' : '';
const binding = (code) => execFileSync(process.execPath, ['-e', `const b = process.binding('fs'); ${code}`], QUIET);
const answer = (s) => new Promise((y, n) => {
  s.on('connect', () => s.write('x')).on('data', (d) => y(`${d}`)).on('error', n);
});
const body = (r) => new Promise((y, n) => {
  r.on('error', n).on('response', (m) => m.on('data', (d) => y(`${d}`)));
});
const datagram = (s, send) => new Promise((y, n) => {
  s.on('message', (d) => y(`${d}` === 'hi\\n')).on('error', n);
  send(s);
}).finally(() => s.close());
const attempt = async (side, n, name, f) => {
  const D = `${WORK}/d/${side}-${n}`;
  let yes = false;
  fs.mkdirSync(D, { recursive: true });
  try {
    yes = await Promise.race([f(D), new Promise((y) => setTimeout(y, side === 'inside' ? 30000 : 5000).unref())]);
  } catch {}
  console.log(side, name, yes === true ? 'yes' : 'no');
};
process.on('uncaughtException', () => 0);
const main = async () => {
const server = spawn('python3', ['-B', SERVER, `${WORK}/in`], { stdio: 'ignore' });
const child = spawn('sleep', ['1000'], { detached: true, stdio: 'ignore' });
while (!fs.existsSync(`${WORK}/in/ports`)) await new Promise((y) => setTimeout(y, 20));
"""
NODE_END = """
server.kill();
};
"""


class Scene:
    """The same things outside and inside, and a server and a process outside."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.hidden = box.folder(box.base / "hidden")
        inside = box.folder(box.work / "in")
        for folder in (self.hidden, inside):
            for name, text in {
                "secret": "SECRET\n",
                "secret2": "SECRET\n",
                "script": "X=ran\n",
                "code.json": '{"x": 1}',
                "code.cjs": "module.exports = 'ran';",
                "tool": "#!/bin/sh\necho tool\n",
            }.items():
                box.file(folder / name, text).chmod(0o755)
        for folder in (box.out, inside):
            for name in ("plain", "removed", "removed2", "renamed"):
                box.file(folder / name)
        self.library = box.work / "library.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.library, "-xc", "-"], input=LIBRARY.encode(), check=True)
        shutil.copy(SERVER, box.work)
        self.processes = [subprocess.Popen([sys.executable, "-B", str(SERVER), str(box.out)])]
        while len(self.processes) < 2 or self.processes[-1].pid < 5000:  # no process inside has this number
            self.processes.append(subprocess.Popen([*box.as_user, "sleep", "1000"]))
        eventually((box.out / "ports").exists)
        self.ports = (box.out / "ports").read_text().split()
        self.before = self.state()

    def state(self) -> dict[str, tuple[object, ...]]:
        """Of all that is outside."""
        found = {}
        for folder in (self.hidden, self.box.out):
            for name in names_below(folder):
                e = (folder / name).lstat()
                text = (folder / name).read_bytes() if (folder / name).is_file() else b""
                found[f"{folder}/{name}"] = (e.st_mode, e.st_uid, e.st_nlink, e.st_mtime_ns, text)
        return found

    def variables(self, side: str) -> dict[str, object]:
        work = self.box.work
        if side == "outside":
            port, datagrams = self.ports
            return {"S": self.hidden, "W": self.box.out, "N": work / ".bashrc", "P": port, "U": datagrams,
                    "K": self.processes[-1].pid}  # fmt: skip
        return {"S": work / "in", "W": work / "in", "N": work / "in/bashrc"}

    def close(self) -> None:
        for p in self.processes:
            p.kill()
            p.wait()


def bash_script(scene: Scene) -> str:
    work = scene.box.work
    text = f"cd {work}; python3 -B {SERVER.name} in & server=$!; setsid sleep 1000 & process=$!\n"
    text += f"until [[ -s in/ports ]]; do sleep 0.02; done; L={scene.library}\n"
    for at, side in enumerate(("outside", "inside")):
        text += " ".join(f"{name}={value}" for name, value in scene.variables(side).items()) + "\n"
        if side == "inside":
            text += "read P U <in/ports; K=$process\n"
        for n, (name, code) in enumerate(BASH.items()):
            code = code if isinstance(code, str) else code[at]
            text += f"D={work}/d/{side}-{n}; mkdir -p $D\nif (\n{code}\n) >/dev/null 2>&1 </dev/null\n"
            text += f"then echo {side} {name} yes; else echo {side} {name} no; fi\n"
    return text + "kill $server; :\n"


def node_script(scene: Scene) -> str:
    work = scene.box.work
    text = f"const WORK = {json.dumps(str(work))}, SERVER = `${{WORK}}/{SERVER.name}`, L = '{scene.library}';\n"
    text += NODE_BEGIN
    for at, side in enumerate(("outside", "inside")):
        values = {
            name: value if isinstance(value, int) else str(value) for name, value in scene.variables(side).items()
        }
        text += f"{{\nconst {{ {', '.join(values)} }} = {json.dumps(values)};\n"
        if side == "inside":
            text += "const [P, U] = fs.readFileSync(`${WORK}/in/ports`, 'utf8').split(/\\s/), K = child.pid;\n"
        for n, (name, code) in enumerate(NODE.items()):
            code = code if isinstance(code, str) else code[at]
            text += f"await attempt('{side}', {n}, '{name}', async (D) => {{ {code} }});\n"
        text += "}\n"
    return text + NODE_END


@pytest.mark.no_sanitizer  # most of it is what bash and node do
@pytest.mark.parametrize(
    ("language", "where"),
    with_peers(itertools.product(("bash", "node"), ("kernel", "command")), ("bash", "command"), ("node", "kernel")),
)
def test_attempts(box: Box, language: str, where: str) -> None:
    if shutil.which(language) is None:
        pytest.skip(f"there is no {language}")
    scene = Scene(box)
    try:
        if language == "bash":
            script = box.file("attempts.sh", bash_script(scene))
        else:
            end = "await main();" if where == "kernel" else "main().then(() => process.exit());"
            script = box.file("attempts.cjs", node_script(scene) + end)
        settings = Box.settings({"denyRead": [str(scene.hidden)]})
        box.timeout *= 4  # hundreds of programs
        if where == "command":
            p = box.run(language, script, settings=settings)
        else:
            argv = [*box.as_user, box.program, "run", "--sandbox", box.write_settings(settings), script]
            p = subprocess.run(
                list(map(str, argv)), capture_output=True, text=True, cwd=box.work, env=box.env, timeout=box.timeout
            )
        got = dict(line.rsplit(" ", 1) for line in p.stdout.splitlines() if line.startswith(("outside ", "inside ")))
        attempts = BASH if language == "bash" else NODE
        wrong = [name for name in attempts if got.get(f"inside {name}") != "yes"]
        holes = [name for name in attempts if got.get(f"outside {name}") != "no"]
        assert (holes, wrong) == ([], []), p.stderr[-3000:]
        assert p.returncode == 0, p.stderr
        assert scene.state() == scene.before
        assert not [name for name in os.listdir(box.work) if name.lower() == ".bashrc"]
        assert scene.processes[-1].poll() is None
    finally:
        scene.close()
