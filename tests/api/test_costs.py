"""What a cell cost, in its RESULT: each figure counts what the cell did, and nothing of earlier cells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cellgate_api import E_INVAL, E_NOTFOUND, CellgateError, Client, Session, ffi, lib
from forging import LIBRARY
from processes import eventually, gate
from web import FETCH, settings

MB = 1 << 20
BURN = "import time\nwhile time.process_time() - t < 0.3: pass"


@pytest.fixture(scope="module", params=["full", "landlock", "off"])
def any_tier(request: pytest.FixtureRequest, client: Client, work: Path) -> Iterator[Session]:
    try:
        s = client.session(
            workspace=work, **({"sandbox": 1} if request.param == "off" else {"tier": request.param})
        )
    except CellgateError as e:
        pytest.skip(f"no such tier here: {e}")
    with s:
        yield s


def cost(s: Session, code: str, **opts: object) -> Any:
    out = s.run(code, **opts)
    assert out.status == "ok", out
    assert out.result.costs is not None
    return out.result.costs


# ---------------------------------------------------------------- figures of the kernel's process


def test_processor_time(any_tier: Session) -> None:
    used = cost(any_tier, "import time; t = time.process_time()\n" + BURN)
    assert used.cpu_us >= 300_000 and used.wall_us > 0
    assert cost(any_tier, "pass").cpu_us < 300_000


def test_processor_time_of_threads_and_of_children_that_were_waited_for(session: Session) -> None:
    in_thread = f"import threading, time\nt = time.process_time()\ndef f():\n    exec({BURN!r}, globals())\n"
    assert cost(session, in_thread + "x = threading.Thread(target=f); x.start(); x.join()").cpu_us >= 300_000
    child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {'t = 0' + chr(10) + BURN!r}], check=True)"
    assert cost(session, child).cpu_us >= 270_000, "in steps of 10 ms, rounded down"
    assert cost(session, "pass").cpu_us < 300_000


def test_peak_memory_is_that_of_the_cell_alone(any_tier: Session) -> None:
    assert cost(any_tier, f"x = bytearray({200 * MB}); del x").memory_bytes >= 195 * MB
    assert cost(any_tier, "pass").memory_bytes < 40 * MB
    # The first cell's peak is reset right after its result: until then, less is known.
    eventually(lambda: 75 * MB <= cost(any_tier, f"x = bytearray({80 * MB}); del x").memory_bytes < 195 * MB)
    assert 75 * MB <= cost(any_tier, f"x = bytearray({80 * MB})").memory_bytes < 195 * MB, (
        "what it keeps is known at once"
    )
    assert cost(any_tier, "y = len(x)").memory_bytes < 40 * MB, "what was there before does not count"


def test_written_bytes(any_tier: Session) -> None:
    write = "open({!r}, 'wb').write(bytes(3_000_000))"
    assert 3_000_000 <= cost(any_tier, write.format("file")).written_bytes < 4_000_000
    in_tmp = "import tempfile\nwith tempfile.TemporaryFile() as f: f.write(bytes(3_000_000)); f.flush()"
    assert 3_000_000 <= cost(any_tier, in_tmp).written_bytes < 4_000_000
    assert 3_000_000 <= cost(any_tier, "!head -c 3000000 /dev/zero > file").written_bytes < 4_000_000
    assert cost(any_tier, "open('file', 'rb').read()\npass").written_bytes < 1_000_000


# ---------------------------------------------------------------- what is counted


def test_commands(session: Session) -> None:
    code = (
        "import asyncio, os, subprocess, sys\n"
        "subprocess.run(['true']); os.system('true'); os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)\n"
        "!true\n"
        "p = await asyncio.create_subprocess_exec('true'); await p.wait()\n"
        "try: subprocess.run(['/no/such'])\nexcept FileNotFoundError: pass"
    )
    assert cost(session, code).commands == 6
    assert cost(session, "1 + 1").commands == 0
    assert session.run("subprocess.run(['true']); 1/0").result.costs.commands == 1
    pickled = "import pickle, posix\nassert pickle.loads(pickle.dumps(os.system)) is os.system is posix.system"
    assert cost(session, pickled).commands == 0


def test_what_runs_between_cells_is_counted_to_none(session: Session, workspace: Path) -> None:
    release = gate(workspace)
    session.run(
        "import subprocess, threading\ndef later():\n    open('go').read()\n"
        "    for i in range(5): subprocess.run(['true'])\n"
        f"    open('big', 'wb').write(bytes({3 * MB}))\n    open('done', 'w').close()\n"
        "threading.Thread(target=later).start()"
    )
    release()
    eventually(lambda: (workspace / "done").exists())
    after = cost(session, "pass")
    assert (after.commands, after.written_bytes < MB) == (0, True)


def test_tool_calls_asked_about(tools: Session) -> None:
    code = "from mcptools.echo import danger\nfor i in range(3):\n    try: danger.run(text='x')\n    except Exception: pass"
    out = tools.run(code, decide=lambda e: "no")
    assert out.result.costs.tool_calls == 3
    assert cost(tools, "pass").tool_calls == 0


def test_connections_and_denials(client: Client, workspace: Path, port: int) -> None:
    s = settings(network={"allowedDomains": [f"127.0.0.1:{port}"]})
    with client.session(workspace=workspace, settings=s) as session:
        cost(session, FETCH)
        made = cost(session, f"fetch('http://127.0.0.1:{port}/'), fetch('http://127.0.0.1:{port}/')")
        assert (made.connections, made.denials) == (2, 0)
        refused = cost(session, "fetch('http://refused.example/')")
        assert (refused.connections, refused.denials) == (0, 1)
        none = cost(session, "pass")
        assert (none.connections, none.denials) == (0, 0)


def test_denials_of_files(session: Session) -> None:
    assert session.run("open('/etc/x', 'w')").result.costs.denials == 1
    assert cost(session, "pass").denials == 0


def test_without_a_sandbox_connections_are_not_known(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, sandbox=1) as session:
        assert cost(session, "pass").connections == -1


# ---------------------------------------------------------------- other code at the same time


def test_a_cell_that_ran_alone_is_not_shared(session: Session) -> None:
    assert cost(session, "pass").shared == 0
    session.ask("create_subshell_request", {})
    session.ask("is_complete_request", {"code": "x"})
    session.command("true")
    eventually(lambda: cost(session, "pass").shared == 0)  # the last process of a command ends after its result


def test_cells_of_subshells_are_shared(session: Session, workspace: Path) -> None:
    name = session.ask("create_subshell_request", {}).json["subshell_id"]
    release = gate(workspace)
    session.execute("open('go').read()\npass")
    assert cost(session, "pass", subshell=name).shared == 1
    release()
    result = session.until("result")[-1]
    assert result.costs is not None and result.costs.shared == 1, "it started alone"
    assert cost(session, "pass").shared == 0


def test_commands_beside_a_cell_are_shared(session: Session, workspace: Path) -> None:
    release = gate(workspace)
    session.execute("open('go').read()\npass")
    session.command("true")
    release()
    result = session.until("result")[-1]
    assert result.costs is not None and (result.costs.shared, result.costs.commands) == (1, 0)


def test_requests_beside_a_cell_are_shared(session: Session, workspace: Path) -> None:
    release = gate(workspace)
    session.execute("open('go').read()\npass")
    assert session.ask("usage_request", {}, timeout_ms=2**63 - 1).status == "ok"
    release()
    result = session.until("result")[-1]
    assert result.costs is not None and result.costs.shared == 1


# ---------------------------------------------------------------- ends, sizes, lies


def test_cells_that_did_not_run_or_whose_kernel_ended(session: Session, workspace: Path) -> None:
    release = gate(workspace)
    session.execute("open('go').read()\npass")
    session.cancel(session.execute("print('never')"))
    assert session.until("result")[-1].costs is None
    release()
    session.until("result")
    ended = session.run("import os; os._exit(3)")
    assert ended.status == "kernel_died" and ended.result.costs is not None
    assert (ended.result.costs.cpu_us, ended.result.costs.commands) == (-1, -1) and ended.result.costs.wall_us > 0
    assert cost(session, "pass").cpu_us >= 0, "of the new kernel"


def test_sizes(session: Session) -> None:
    session.execute("pass")
    costs, whole = ffi.new("struct cg_costs *"), ffi.sizeof("struct cg_costs")
    while lib.cg_event_type(ptr := session.next_ptr()) != lib.CG_EVENT_RESULT:
        costs.size = whole
        assert lib.cg_event_costs(ptr, costs) == E_NOTFOUND
        lib.cg_event_free(ptr)
    for costs.size in (0, 4, whole + 8):
        assert lib.cg_event_costs(ptr, costs) == E_INVAL
    costs.size, costs.cpu_us = ffi.offsetof("struct cg_costs", "cpu_us"), -7
    assert lib.cg_event_costs(ptr, costs) == 0 and costs.wall_us > 0 and costs.cpu_us == -7
    lib.cg_event_free(ptr)


FORGED = LIBRARY + "forge(message(2, 11, {cell}, b'{body}', b''), 'k')\nwhile True: pass"


def test_a_kernel_forges_only_its_own_figure(session: Session) -> None:
    body = '{"status":"ok","execution_count":1,"commands":7,"costs":{"tool_calls":9},"cpu_us":1,"wall_us":1,"tool_calls":9}'
    out = session.run(FORGED.replace("{cell}", "1").replace("{body}", body))
    assert out.status == "ok" and out.result.costs is not None
    assert (out.result.costs.commands, out.result.costs.tool_calls) == (7, 0) and out.result.costs.wall_us > 1


def test_a_forged_number_that_is_none_ends_the_kernel(session: Session) -> None:
    wrong = [f'"commands":{n}' for n in ("-1", '"7"', "1e3", "99999999999999999999")]
    wrong += [f'"execution_count":{n}' for n in (-1, 2**63 - 1)] + ['"next":-1']
    for i, member in enumerate(wrong):
        body = f'{{"status":"ok",{member}}}'
        out = session.run(FORGED.replace("{cell}", str(2 * i + 1)).replace("{body}", body))
        assert out.status == "kernel_died", member
        assert session.run("1").value == "1", member
