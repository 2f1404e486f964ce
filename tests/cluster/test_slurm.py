"""docs/cluster.md in a job of Slurm and over ssh."""

import json
import shlex
from pathlib import Path

import pytest
from cluster.slurm import Cluster
from rounds import peer

pytestmark = peer  # the cluster of scripts/test runs a recipe of test_recipes.py

SENT = "[host] to ada@example.org: hello"


def test_episodes_on_each_node(cluster: Cluster) -> None:
    cluster.run(f"rm -rf jobs && cp -r {cluster.examples}/cluster jobs")
    cluster.run(f"cd jobs && PYTHON={cluster.python} sbatch --wait -N 2 -o out rollouts.sbatch 3")
    lines = [json.loads(line) for line in cluster.run("cat jobs/out").stdout.splitlines()]
    assert {line["node"] for line in lines} == {"n1", "n2"}
    assert all((line["episodes"], line["score"]) == (3, 1.0) for line in lines)
    cluster.wait_until_empty()


@pytest.mark.parametrize("remote", ["srun -N1 {}", "ssh n1 CELLGATE_PRIVATE=1 {}"])
def test_functions_and_questions_stay_at_the_program(cluster: Cluster, remote: str) -> None:
    """The kernel runs in the job or on the host; `lookup` and `send` run here, and `send` is asked about here."""
    program = shlex.quote(remote.format(cluster.cellgate))
    p = cluster.run(
        f"mkdir -p work && CELLGATE={program} {cluster.python} {cluster.examples}/agent.py /home/alice/work"
    )
    assert SENT in p.stdout and "RejectedError" in p.stdout and "everyone@example.org:" not in p.stdout
    cluster.wait_until_empty()


ECHO = Path(__file__).parents[1] / "api/echo_server.py"
CONNECT = f"""
import os, sys, cellgate
called = []
ECHO = {str(ECHO)!r}
"""
CONNECT += """
with cellgate.Client(connect=sys.argv[1:]) as node:
    with cellgate.Session("/home/alice/work", client=node) as s:
        s.functions({"send": lambda to: called.append(to)}, ask=True)
        code = "from mcptools.host import send\\nsend.run(to='ada')"
        assert s.run(code, approve=lambda _: False).refused and not called
        assert s.run(code, approve=lambda r: r.arguments == {"to": "ada"}).ok and called == ["ada"]
        server = {"command": sys.executable, "args": [ECHO], "env": {"MARK": "/home/alice/mark"}}
        assert "error" not in s.add_mcp_servers({"e": server})["e"]
        shown = []
        code = "from mcptools.e import danger\\ndanger.run(text='hello')"
        assert s.run(code, approve=lambda r: shown.append(r.arguments) or False).refused
        assert shown == [{"text": "hello"}] and not os.path.exists("/home/alice/mark")
        assert s.run(code, approve=lambda _: True).ok and os.path.exists("/home/alice/mark")
        os.remove("/home/alice/mark")
        s.files.write("data", b"x" * 3_000_000)
        print(s.run("import os\\nos.path.getsize('data')").value)
"""


@pytest.mark.parametrize("remote", ["srun -N1", "ssh n1"])
def test_connect(cluster: Cluster, remote: str) -> None:
    """A session on the node; its function and its MCP server run here, and are asked about here."""
    words = f"{remote} {cluster.cellgate} relay"
    p = cluster.run(f"mkdir -p work && {cluster.python} -c {shlex.quote(CONNECT)} {words}")
    assert p.stdout == "3000000\n"
    p = cluster.run(
        f"{cluster.cellgate} run --connect '{words}' --workspace /home/alice/work -c 'import os; os.getcwd()'"
    )
    assert p.stdout == "'/home/alice/work'\n"
    cluster.wait_until_empty()


BROKEN = """
import subprocess, sys, time, cellgate
with cellgate.Client(connect=sys.argv[1:]) as node, cellgate.Session("/home/alice/work", client=node) as s:
    done = []
    for event in s.stream("print('on')\\nimport time\\ntime.sleep(2)\\nopen('ran', 'a').write('1')\\nprint('off')"):
        done.append(getattr(event, "text", ""))
        if done[-1] == "on\\n":
            subprocess.run(["pkill", "-x", "ssh"], check=True)
    assert "off\\n" in done
    print(s.run("open('ran').read()").value)
"""


def test_a_session_goes_on_after_ssh_was_killed(cluster: Cluster) -> None:
    """Nothing of it stays in the end."""
    words = f"ssh n1 {cluster.cellgate} relay"
    p = cluster.run(f"mkdir -p work; rm -f work/ran; {cluster.python} -c {shlex.quote(BROKEN)} {words}")
    assert p.stdout == "'1'\n"
    cluster.wait_until_empty()


def test_a_cancelled_job_takes_its_sessions_along(cluster: Cluster) -> None:
    """They do not wait for another connection, which could only be of another job."""
    program = shlex.quote(CANCELLED)
    words = f"srun -N1 -J cut {cluster.cellgate} relay"
    p = cluster.run(f"mkdir -p work; {cluster.python} -c {program} {words}")
    assert "node_lost" in p.stdout
    cluster.wait_until_empty()


CANCELLED = """
import subprocess, sys, time, cellgate
begun = time.monotonic()
with cellgate.Client(connect=sys.argv[1:]) as node:
    s = cellgate.Session("/home/alice/work", client=node)
    subprocess.run(["scancel", "-n", "cut"], check=True)
    try:
        s.run("import time; time.sleep(600)")
    except cellgate.ClosedError as e:
        pass
    try:
        node.status()
    except cellgate.ClosedError as e:
        print(e)
assert time.monotonic() - begun < 25
"""


@pytest.mark.parametrize("remote", ["srun -N1", "ssh n1"])
def test_an_mcp_server_whose_cells_run_on_a_node(cluster: Cluster, remote: str) -> None:
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    code = "import os\nfrom mcptools.e import echo\n(os.getcwd(), echo.run(text='x'))"
    cell = {"name": "execute_ipython_cell", "arguments": {"code": code}}
    messages = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": cell},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **m}) + "\n" for m in messages)
    servers = {"mcpServers": {"e": {"command": cluster.python, "args": [str(ECHO)]}}}
    serve = f"{cluster.cellgate} mcp serve --connect '{remote} {cluster.cellgate} relay' --workspace /home/alice/work"
    p = cluster.run(
        f"mkdir -p work; echo {shlex.quote(json.dumps(servers))} > servers.json; "
        f"(printf %s {shlex.quote(lines)}; until grep -q '\"id\":2' out; do sleep 0.1; done) | "
        f"{serve} --mcp servers.json --approve e.echo > out && cat out"
    )
    shown = next(json.loads(line) for line in p.stdout.splitlines() if '"id":2' in line)
    assert shown["result"]["content"][0]["text"] == "('/home/alice/work', 'x')"
    cluster.wait_until_empty()


def test_the_end_of_the_link_ends_the_session(cluster: Cluster) -> None:
    line = json.dumps({"execute": {"code": "import time\ntime.sleep(600)"}})
    begun = f"(echo {shlex.quote(line)}; sleep 600) | ssh n1 {cluster.cellgate} run --private --json --workspace work"
    cluster.run(
        f"mkdir -p work; ({begun}) > began 2>&1 & until grep -q started began; do sleep 0.1; done; pkill -x ssh; pkill sleep"
    )
    cluster.wait_until_empty()


def test_a_job_has_a_supervisor_of_its_own(cluster: Cluster) -> None:
    """Two jobs on one node, of which the first is cancelled: the other's kernel lives on."""
    cell = "import os, time\nopen('{}', 'w').close()\nwhile not os.path.exists('end'): time.sleep(0.1)\nprint('whole')"
    job = f"{cluster.cellgate} run --workspace . -c {shlex.quote(cell)}"
    cluster.run("rm -rf two && mkdir two")
    first, second = (
        cluster.run(f"cd two && sbatch --parsable -w n1 -o {n}.out --wrap {shlex.quote(job.format(n))}").stdout.strip()
        for n in ("a", "b")
    )
    cluster.run("cd two && until [ -e a ] && [ -e b ]; do sleep 0.1; done")
    assert sum("cellgate-superv" in name for name in cluster.processes()) == 2
    cluster.run(f"scancel {first} && touch two/end")
    cluster.run(f"while squeue -h -j {second} 2>/dev/null | grep -q .; do sleep 0.1; done")
    assert cluster.run("cat two/b.out").stdout == "whole\n"
    cluster.wait_until_empty()


def test_limits_follow_the_job(cluster: Cluster) -> None:
    job = f"{cluster.cellgate} run --json -c pass"
    cluster.run(f"mkdir -p work && cd work && sbatch --wait --mem=600M -o ../limits --wrap {shlex.quote(job)}")
    limits = json.loads(cluster.run("head -n 1 limits").stdout)["info"]["limits"]
    assert (limits["memory"]["value"], limits["memory"]["unit"]) == (300, "MiB")


def test_a_program_in_a_job(cluster: Cluster) -> None:
    settings = {
        "network": {"allowedDomains": [], "deniedDomains": []},
        "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
    }
    cluster.run(f"mkdir -p work && echo {shlex.quote(json.dumps(settings))} > settings.json")
    sandbox = f"{cluster.cellgate} sandbox -s ~/settings.json -c 'echo in > file; echo out > ../outside'"
    p = cluster.run(f"cd work && srun -N1 {sandbox}", check=False)
    assert p.returncode != 0 and "Read-only" in p.stderr + p.stdout
    assert cluster.run("cat work/file; [ ! -e outside ]").stdout == "in\n"
    cluster.wait_until_empty()
