"""The audit log: what is in it, what cannot happen without it, and which changes of it are found."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import processes
import pytest
import web
from cellgate_api import CellgateError, Client, Event, Session
from server_definitions import definition, echo

Audit = Callable[..., subprocess.CompletedProcess[str]]
SIGN_EVERY = 64


@pytest.fixture
def state(outside: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(outside))
    monkeypatch.setenv("CELLGATE_PRIVATE", "1")
    return outside / "cellgate/audit"


@pytest.fixture(scope="module")
def writer() -> Iterator[tuple[Client, Path]]:
    """A client, and its folder with the log that several tests share."""
    with tempfile.TemporaryDirectory(prefix="cellgate-test-", dir=Path.home()) as home:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", home)
            client = Client(log_level=0)
        with client:
            yield client, Path(home)


@pytest.fixture
def audited(writer: tuple[Client, Path], workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session with a secret, in the log that tests share."""
    monkeypatch.setenv("XDG_STATE_HOME", str(writer[1]))
    with writer[0].session(workspace=workspace, audit="strict", env=["API_TOKEN=open-sesame-42"]) as s:
        yield s


@pytest.fixture
def audit(prefix: Path) -> Audit:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [prefix / "bin/cellgate", "audit", *words], capture_output=True, text=True, timeout=60, check=False
        )

    return run


def records(audit: Audit, *words: str) -> list[dict]:
    return [json.loads(line) for line in audit("--json", *words).stdout.splitlines()]


def end(session: Session, audit: Audit) -> list[dict]:
    """Close the session; what the log has of it."""
    id = session.id
    session.close()
    return [r for r in records(audit) if r["session"] == id]


def kinds(found: list[dict]) -> list[str]:
    return [r["kind"] for r in found]


def add_echo(session: Session, mark: Path) -> None:
    session.add_servers({"echo": definition(env={"MARK": str(mark), "API_TOKEN": "tok-1234567"})})


def fill(state: Path, workspace: Path, cells: int = 40) -> None:
    """A log with two sessions, which is not in use."""
    with Client(log_level=0) as c:
        for n in range(2):
            with c.session(workspace=workspace, audit="strict") as s:
                for i in range(cells):
                    s.run(f"{n} + {i}")
    # The writer has written all of it before the supervisor ends.
    with sqlite3.connect(state / "audit-000001.sqlite") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


# ---------------------------------------------------------------- what is recorded


def test_cells_calls_and_refusals_are_in_the_log(audited: Session, mark: Path, audit: Audit) -> None:
    add_echo(audited, mark)
    audited.run("from mcptools.echo import danger, echo\ndanger.run(text='ä')", lambda e: True)
    audited.run("echo.run(text='no')", lambda e: "not today")
    audited.run("open('/etc/shadow')")
    found = end(audited, audit)
    assert kinds(records(audit))[0] == "log.started"
    assert kinds(found)[:2] == ["session.opened", "servers.added"]
    assert found[1]["body"] == {"servers": ["echo"]}
    questions = [r["body"] for r in found if r["kind"] == "question"]
    assert [(q["decision"], q["reason"], q["question"]["tool"]) for q in questions] == [
        ("accept", "", "danger"),
        ("reject", "not today", "echo"),
    ]
    assert json.loads(questions[0]["arguments"]) == {"text": "ä"}
    cells = [r["body"] for r in found if r["kind"] == "cell.started"]
    assert [c["code"] for c in cells][1:] == ["echo.run(text='no')", "open('/etc/shadow')"]
    ends = [r["body"]["event"]["status"] for r in found if r["kind"] == "cell.ended"]
    assert ends == ["ok", "error", "error"]
    (call,) = [r["body"] for r in found if r["kind"] == "call.ended"]
    assert (call["approval"], call["status"], call["tool"]) == (questions[0]["approval"], "ok", "danger")
    assert len(call["sha256"]) == 64 and call["bytes"] > 0
    # A decision is recorded before the call runs, and so before its cell's end.
    assert kinds(found).index("question") < kinds(found).index("cell.ended")
    assert found[-1]["kind"] == "session.ended"
    assert "tok-1234567" not in audit("--json").stdout


def test_results_are_recorded_by_their_digests(audited: Session, mark: Path, audit: Audit) -> None:
    """Of the bytes that the server sent, also of a large result, which the cell does not get in one piece."""
    add_echo(audited, mark)
    texts = ["a", "b" * 1_200_000]
    audited.run(
        "from mcptools.echo import die, echo\nfor t in ['a', 'b' * 1_200_000]: echo.run(text=t)", lambda e: True
    )
    audited.run("die.run()", lambda e: True)
    audited.run("echo.run(text='a')", lambda e: False)
    ends = [r["body"] for r in end(audited, audit) if r["kind"] == "call.ended"]
    sent = [json.dumps({"content": [{"type": "text", "text": t}], "isError": False}).encode() for t in texts]
    assert [(e["status"], e.get("bytes"), e.get("sha256")) for e in ends] == [
        *(("ok", len(r), hashlib.sha256(r).hexdigest()) for r in sent),
        ("failed", None, None),
    ]


def test_a_function_s_result_is_recorded_by_its_digest(audited: Session, audit: Audit) -> None:
    audited.add_functions("host", [{"name": "f", "inputSchema": {"type": "object"}}])
    audited.execute("from mcptools.host import f\nf.run()")
    audited.give(audited.until("function_call")[-1].approval, "the value")
    audited.until("result")
    (returned,) = [r["body"] for r in end(audited, audit) if r["kind"] == "question"]
    assert returned["decision"] == "answered" and returned["result"]["bytes"] > len("the value")
    assert len(returned["result"]["sha256"]) == 64 and "the value" not in json.dumps(returned)


def test_large_arguments_are_recorded_by_digest_and_beginning(audited: Session, mark: Path, audit: Audit) -> None:
    """What is cut is redacted before, so that no half of a secret is left; what fits is recorded whole."""
    add_echo(audited, mark)
    audited.run("from mcptools.echo import echo", lambda e: True)
    audited.run("echo.run(text='x' * 60000)", lambda e: True)
    # The secret is across the 16384th byte of {"text":"aaa...
    audited.run("echo.run(text='a' * (16384 - 16) + 'open-' + 'sesame-42' + 'ä' * 40000)", lambda e: True)
    whole, cut = [r["body"]["arguments"] for r in end(audited, audit) if r["kind"] == "question"]
    assert json.loads(whole) == {"text": "x" * 60000}
    sent = json.dumps({"text": "a" * (16384 - 16) + "open-sesame-42" + "ä" * 40000}, separators=(",", ":"))
    texts = [sent.encode(), json.dumps(json.loads(sent), separators=(",", ":"), ensure_ascii=False).encode()]
    assert (cut["bytes"], cut["sha256"]) in [(len(t), hashlib.sha256(t).hexdigest()) for t in texts]
    assert cut["beginning"].startswith('{"text":"aaaa') and len(cut["beginning"].encode()) <= 16384
    assert "open" not in cut["beginning"] and "***" in cut["beginning"]


def test_commands_resets_and_no_values_of_secret_variables_are_in_the_log(audited: Session, audit: Audit) -> None:
    audited.run("x = 'open-sesame-42'")
    audited.command("echo", "hello")
    audited.reset()
    client = audited.client
    found = end(audited, audit)
    assert [r["body"]["code"] for r in found if r["kind"] == "cell.started"] == ["x = '***'"]
    started = next(r for r in found if r["kind"] == "command.started")
    assert started["body"]["words"][1:] == ["echo", "hello"]
    assert {"command.ended", "session.reset"} <= set(kinds(found))
    with pytest.raises(CellgateError, match="audit"):
        client.session(workspace="/tmp", audit="sometimes")


def test_a_session_without_the_option_is_not_in_the_log(state: Path, workspace: Path) -> None:
    with Client(log_level=0) as c, c.session(workspace=workspace) as s:
        s.run("1")
    assert not state.exists()


def test_cells_neither_read_nor_write_the_log(audited: Session, writer: tuple[Client, Path]) -> None:
    file = writer[1] / "cellgate/audit/audit-000001.sqlite"
    audited.run("1")
    assert file.exists()
    out = audited.run(f"import os\nprint(os.path.exists({str(file)!r}))")
    assert out.stdout == "False\n"
    out = audited.run(f"open({str(file)!r}, 'ab')")
    assert out.status == "error"


def test_two_supervisors_write_one_chain(state: Path, workspace: Path, audit: Audit) -> None:
    def work() -> None:
        with Client(log_level=0) as c, c.session(workspace=workspace, audit="strict") as s:
            for i in range(20):
                s.run(str(i))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert kinds(records(audit)).count("cell.started") == 40
    assert audit("verify").returncode == 0


# ---------------------------------------------------------------- what cannot happen without it


def break_log(state: Path) -> None:
    shutil.rmtree(state)
    state.write_text("no folder")


def writer_of(client: Client) -> int:
    """The process that writes the log."""
    return processes.named(processes.children(client.status()["pid"]), "cellgate-audit")


def test_what_cannot_be_recorded_does_not_happen(state: Path, workspace: Path, mark: Path) -> None:
    with Client(log_level=0) as c, c.session(workspace=workspace, audit="strict") as s:
        add_echo(s, mark)

        def decide(e: Event) -> bool:
            break_log(state)
            os.kill(writer_of(c), signal.SIGKILL)
            return True

        out = s.run("from mcptools.echo import danger\ndanger.run(text='x')", decide)
        assert out.status == "error" and "audit log cannot be written" in str(out.events)
        assert not mark.exists()
        out = s.run("open('made', 'w')")
        assert out.status == "cancelled" and "audit log cannot be written" in str(out.events)
        assert s.command("touch", "made")[0].status == "error"
        assert not (workspace / "made").exists()
        with pytest.raises(CellgateError, match="audit log cannot be written"):
            c.session(workspace=workspace, audit="strict")


def test_best_effort_says_that_records_are_missing(state: Path, workspace: Path, audit: Audit) -> None:
    state.parent.mkdir(parents=True)
    state.write_text("no folder")
    with Client(log_level=0) as c, c.session(workspace=workspace, audit="best-effort") as s:
        out = s.run("print('ran')")
        assert out.stdout == "ran\n"
        notices = [e.text for e in out.events if e.type == "notice" and "audit log" in e.text]
        assert len(notices) == 1 and "is not recorded" in notices[0]
        state.unlink()
        s.run("2")
    found = records(audit)
    assert kinds(found)[:3] == ["log.started", "log.gap", "cell.started"]
    # The session's start, and start and end of the first cell, about which there was one notice.
    assert found[1]["body"] == {"records_at_most": 3}


def test_a_gap_counts_all_that_is_missing(state: Path, workspace: Path, audit: Audit) -> None:
    """Also records that wanted no reply, and those of a writer that wrote nothing before it ended."""
    go = processes.gate(workspace)

    def kill(writer: int) -> None:
        os.kill(writer, signal.SIGKILL)
        processes.eventually(lambda: not processes.alive(writer))

    with Client(log_level=0) as c, c.session(workspace=workspace, audit="best-effort") as s:
        s.execute("open('ready', 'w').close(); open('go').read()")
        processes.eventually(lambda: (workspace / "ready").exists() and "cell.started" in kinds(records(audit)))
        os.kill(writer_of(c), signal.SIGSTOP)
        go()
        s.until("result")
        kill(writer_of(c))
        state.rename(state.with_name("aside"))
        state.mkdir(0o700)
        (state / "audit-000001.sqlite").mkdir()
        s.run("2")
        s.run("3")
        kill(writer_of(c))
        shutil.rmtree(state)
        state.with_name("aside").rename(state)
        s.run("4")
    found = records(audit)
    (gap,) = [r["body"]["records_at_most"] for r in found if r["kind"] == "log.gap"]
    missing = 2 * 4 - sum(kind in ("cell.started", "cell.ended") for kind in kinds(found))
    assert missing == 6 and missing <= gap <= missing + 1  # the record about the gap before


def test_a_child_that_ends_does_not_disturb_the_wait_for_a_reply(state: Path, workspace: Path) -> None:
    with Client(log_level=0) as c, c.session(workspace=workspace, audit="strict") as s:
        s.run("1")
        supervisor, writer = c.status()["pid"], writer_of(c)
        place = Path(f"/proc/{supervisor}/wchan")
        if place.read_text() == "0":
            pytest.skip("this kernel does not show where a process waits")
        os.kill(writer, signal.SIGSTOP)
        s.execute("2")
        processes.eventually(lambda: "unix_stream" in place.read_text())
        os.kill(supervisor, signal.SIGCHLD)
        os.kill(writer, signal.SIGCONT)
        assert s.until("result")[-1].status == "ok"


def test_a_full_disk_stops_cells_and_is_a_gap_in_the_log_afterwards(state: Path, workspace: Path, audit: Audit) -> None:
    """The limit of a file's size (SIGXFSZ is ignored by Python, and inherited) stands for a full disk."""
    with Client(log_level=0) as c, c.session(workspace=workspace, audit="strict") as s:
        s.run("1")
        limit = subprocess.run(
            ["prlimit", f"--pid={writer_of(c)}", "--fsize=1:unlimited"], capture_output=True, text=True, check=False
        )
        assert limit.returncode == 0, limit.stderr
        out = s.run("2")
        assert out.status == "cancelled" and "audit log" in str(out.events)
        subprocess.run(["prlimit", f"--pid={writer_of(c)}", "--fsize=unlimited:unlimited"], check=True)
        assert s.run("3").status == "ok"
    found = records(audit)
    gap = kinds(found).index("log.gap")
    assert found[gap]["body"]["records"] >= 1 and "cell.started" in kinds(found)[gap:]
    assert audit("verify").returncode == 0


def test_a_gap_at_the_end(state: Path, workspace: Path, audit: Audit) -> None:
    """Nothing is recorded any more once the log can be written again."""
    with Client(log_level=0) as c:
        with c.session(workspace=workspace, audit="strict") as s:
            s.run("1")
            subprocess.run(["prlimit", f"--pid={writer_of(c)}", "--fsize=1:unlimited"], check=True)
            assert s.run("2").status == "cancelled"
        subprocess.run(["prlimit", f"--pid={writer_of(c)}", "--fsize=unlimited:unlimited"], check=True)
    assert "log.gap" in kinds(records(audit))
    assert audit("verify").returncode == 0


def test_a_killed_writer_loses_at_most_what_it_was_writing(state: Path, workspace: Path, audit: Audit) -> None:
    with Client(log_level=0) as c, c.session(workspace=workspace, audit="best-effort") as s:
        ran = 0
        for i in range(30):
            s.run(str(i))
            ran += 1
            if i % 3 == 0:
                # One that was killed may end later, at the last record so far: the next record starts another.
                with contextlib.suppress(IndexError, ProcessLookupError):
                    os.kill(writer_of(c), signal.SIGKILL)
    assert audit("verify").returncode == 0
    found = records(audit)
    codes = {r["body"]["code"] for r in found if r["kind"] == "cell.started"}
    gaps = [r["body"] for r in found if r["kind"] == "log.gap"]
    missing = ran - len(codes)
    assert missing <= sum(g.get("records_at_most", 0) + g.get("records", 0) for g in gaps)
    assert gaps


REPLY = 1000 + 4 + 132  # error, recorded, signature of a manifest


class Writer:
    """The writer of a supervisor, whose part the test plays: records as src/audit/audit.h has them."""

    def __init__(self, prefix: Path, folder: Path):
        self.socket, theirs = socket.socketpair()
        argv = [prefix / "libexec/cellgate/cellgate-audit", "--writer", str(theirs.fileno()), folder, "", ""]
        self.process = subprocess.Popen(argv, pass_fds=[theirs.fileno()])
        theirs.close()

    @staticmethod
    def record(number: int) -> bytes:
        """A record with this number, which wants a reply."""
        body = json.dumps({"number": number, "filler": "x" * (number % 400)}).encode()
        words = [b"s" * 32, b"session.ended" if number % 50 == 49 else b"cell.started", body]
        head = struct.pack("=QIIII", 1_700_000_000_000_000 + number, *map(len, words), 1)
        return head + b"".join(w + b"\0" for w in words)

    def replies(self, count: int) -> None:
        """Wait for so many; each says that nothing has failed."""
        for _ in range(count):
            assert self.socket.recv(REPLY, socket.MSG_WAITALL) == bytes(1000) + (1).to_bytes(4, "little") + bytes(132)

    def end(self, how: int) -> int:
        """Kill the writer, or (0) let it end as with its supervisor; return how many replies it has sent since."""
        if how:
            self.process.send_signal(how)
        else:
            self.socket.shutdown(socket.SHUT_WR)
        got = b""
        with contextlib.suppress(ConnectionResetError):  # killed before it had read all
            while part := self.socket.recv(65536):
                got += part
        self.process.wait(30)
        self.socket.close()
        return len(got) // REPLY


KILLS = int(os.environ.get("CG_KILLS", "40"))


def test_a_log_is_whole_after_each_kill(prefix: Path, state: Path, audit: Audit) -> None:
    """Killed at random counts of records, in bursts and in the middle of one: what was replied to is in the log."""
    random = Random(KILLS)
    state.mkdir(0o700, parents=True)
    sent = 0
    for n in range(KILLS):
        writer, how = Writer(prefix, state), random.choice([signal.SIGKILL] * 9 + [0])
        alone, burst = random.randrange(8), random.randrange(1, 12)
        for _ in range(alone):
            writer.socket.sendall(Writer.record(sent))
            writer.replies(1)
            sent += 1
        data = b"".join(Writer.record(sent + i) for i in range(burst))
        cut = random.choice([len(data), random.randrange(len(data))])
        writer.socket.sendall(data[:cut])
        before = random.randrange(burst) if cut == len(data) else 0
        writer.replies(before)
        replied = sent + before + writer.end(how)
        assert audit("verify").returncode == 0, f"kill {n}"
        numbers = [r["body"]["number"] for r in records(audit, "--since", "2000-01-01") if r["session"]]
        # Whole records only, in order, each once; those without a reply may be in the log or not.
        assert numbers == list(range(len(numbers))) and replied <= len(numbers) <= sent + burst
        sent = len(numbers)
    assert sent > KILLS


# ---------------------------------------------------------------- which changes are found

WRONG: dict[str, list[str]] = {
    "code": ["UPDATE record SET body = replace(body, '0 + 7', '0 + 8') WHERE body LIKE '%0 + 7\"%'"],
    "one byte": ["UPDATE record SET body = body || ' ' WHERE seq = 9"],
    "time": ["UPDATE record SET time = time + 1 WHERE seq = 9"],
    "session": ["UPDATE record SET session = 'x' || substr(session, 2) WHERE seq = 9"],
    "kind": ["UPDATE record SET kind = 'notice' WHERE seq = 9"],
    "decision with its hash": ["UPDATE record SET body = '{}', hash = zeroblob(32) WHERE seq = 9"],
    "short hash": ["UPDATE record SET hash = x'00' WHERE seq = 9"],
    "removed": ["DELETE FROM record WHERE seq = 9"],
    "removed, the others moved up": [
        "DELETE FROM record WHERE seq = 9",
        "UPDATE record SET seq = -seq WHERE seq > 9",
        "UPDATE record SET seq = -seq - 1 WHERE seq < 0",
    ],
    "first removed": ["DELETE FROM record WHERE seq = 1"],
    "added at the front": ["INSERT INTO record VALUES(0, 1, '', 'notice', '{}', zeroblob(32))"],
    "added at the end": ["INSERT INTO record SELECT max(seq) + 1, 1, '', 'notice', '{}', zeroblob(32) FROM record"],
    "two exchanged": [
        "UPDATE record SET seq = -9 WHERE seq = 9",
        "UPDATE record SET seq = 9 WHERE seq = 10",
        "UPDATE record SET seq = 10 WHERE seq = -9",
    ],
    "signature removed": ["DELETE FROM head WHERE seq = (SELECT min(seq) FROM head)"],
    "all signatures removed": ["DELETE FROM head"],
    "signature changed": ["UPDATE head SET signature = zeroblob(64)"],
    "short signature": ["UPDATE head SET signature = x'00'"],
    "signature moved": ["UPDATE head SET seq = seq - 1 WHERE seq = (SELECT min(seq) FROM head)"],
    "end cut off": ["DELETE FROM record WHERE seq > 70"],
    "body as a blob": ["UPDATE record SET body = cast(body || char(0) AS BLOB) WHERE seq = 9"],
    "no records": ["DELETE FROM record"],
    "no table": ["DROP TABLE record"],
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folder with a log of two sessions."""
    home, workspace = tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("workspace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(home))
        fill(home / "cellgate/audit", workspace)
    return home


@pytest.fixture
def copied(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(log, tmp_path / "state")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/cellgate/audit/audit-000001.sqlite"


def test_an_untouched_log_is_whole(copied: Path, audit: Audit) -> None:
    done = audit("verify")
    assert done.returncode == 0 and "none changed or missing" in done.stdout
    assert len(records(audit)) > 2 * SIGN_EVERY


@pytest.mark.parametrize("what", WRONG)
def test_each_change_is_found(what: str, copied: Path, audit: Audit) -> None:
    with sqlite3.connect(copied) as db:
        for statement in WRONG[what]:
            db.execute(statement)
    db.close()
    done = audit("verify")
    assert done.returncode != 0, done.stdout
    if what in ("one byte", "time", "session", "kind", "removed", "body as a blob", "short hash"):
        assert "record 9 " in done.stderr


def test_a_record_with_a_new_hash_is_found_by_the_next(copied: Path, audit: Audit) -> None:
    """The hash is made as an attacker would who knows docs/audit.md, but has not the key."""

    def text(s: str) -> bytes:
        return len(s.encode()).to_bytes(4, "big") + s.encode()

    with sqlite3.connect(copied) as db:
        rows = db.execute("SELECT seq, time, session, kind, body FROM record WHERE seq >= 9 ORDER BY seq").fetchall()
        (before,) = db.execute("SELECT hash FROM record WHERE seq = 8").fetchone()
        for seq, when, session, kind, body in rows:
            new = "{}" if seq == 9 else body
            content = seq.to_bytes(8, "big") + when.to_bytes(8, "big") + text(session) + text(kind) + text(new)
            before = hashlib.sha256(before + hashlib.sha256(content).digest()).digest()
            db.execute("UPDATE record SET body = ?, hash = ? WHERE seq = ?", (new, before, seq))
    db.close()
    done = audit("verify")
    assert done.returncode == 1 and "signature" in done.stderr


def test_an_old_copy_is_found_with_a_head_that_was_kept(log: Path, copied: Path, tmp_path: Path, audit: Audit) -> None:
    old = shutil.copy(copied, tmp_path / "old.sqlite")
    workspace = tmp_path / "w"
    workspace.mkdir()
    with Client(log_level=0) as c, c.session(workspace=workspace, audit="strict") as s:
        s.run("'later'")
    kept = tmp_path / "head"
    kept.write_text(audit("head").stdout)
    assert audit("verify", "--head", str(kept)).returncode == 0
    for end in ("", "-wal", "-shm"):
        copied.with_name(copied.name + end).unlink(missing_ok=True)
    shutil.copy(old, copied)
    assert audit("verify").returncode == 0  # by itself, an old copy is as good as new
    done = audit("verify", "--head", str(kept))
    assert done.returncode == 1 and "is missing: its head was kept" in done.stderr


def test_an_exported_slice_has_its_proof(copied: Path, tmp_path: Path, audit: Audit) -> None:
    session = next(r["session"] for r in records(audit) if r["kind"] == "session.opened")
    out = audit("export", "--session", session[:10]).stdout
    path = tmp_path / "slice"
    path.write_text(out)
    assert audit("verify", "--export", str(path)).returncode == 0
    shown = [json.loads(line) for line in out.splitlines() if "body" in json.loads(line)]
    assert {r["session"] for r in shown} == {session}
    changed = out.replace("0 + 7", "0 + 8")
    assert changed != out
    path.write_text(changed)
    assert audit("verify", "--export", str(path)).returncode == 1
    lines = out.splitlines()
    path.write_text("\n".join(lines[:5] + lines[6:]))
    assert audit("verify", "--export", str(path)).returncode == 1
    path.write_text("\n".join(lines[:-1]))
    assert audit("verify", "--export", str(path)).returncode == 1


def test_a_key_that_others_can_read_is_refused(copied: Path, audit: Audit) -> None:
    (copied.parent / "key").chmod(0o644)
    assert "mode 0600" in audit("verify").stderr
    shutil.rmtree(copied.parent)
    done = audit()
    assert done.returncode == 2 and "there is no audit log" in done.stderr


def test_since_takes_times_and_names_wrong_ones(copied: Path, audit: Audit) -> None:
    assert len(records(audit, "--since", "1h")) == len(records(audit))
    assert records(audit, "--since", time.strftime("%Y-%m-%d", time.localtime(time.time() + 172800))) == []
    assert records(audit, "--since", f"@{time.time() + 60:.0f}") == []
    assert "12h" in audit("--since", "yesterday").stderr


# What the schema requires of each class, beside what it requires of all.
OCSF = {
    0: set(),
    1007: {"actor", "device", "process"},
    1008: {"actor", "device"},
    1009: {"actor", "device", "script"},
    2004: {"finding_info"},
    6002: {"app"},
    6003: {"actor", "api", "src_endpoint"},
}
ALL = {"activity_id", "category_uid", "class_uid", "metadata", "severity_id", "time", "type_uid"}


def test_records_are_events_of_ocsf(audited: Session, mark: Path, audit: Audit) -> None:
    add_echo(audited, mark)
    audited.run("from mcptools.echo import echo\necho.run(text='a')", lambda e: True)
    audited.run("echo.run(text='b')", lambda e: False)
    audited.run("open('/etc/shadow')")
    audited.command("echo", "hello")
    id = audited.id
    audited.close()
    events = [json.loads(line) for line in audit("--ocsf").stdout.splitlines()]
    found = records(audit)
    assert [e["metadata"]["event_code"] for e in events] == kinds(found)
    assert [e["unmapped"]["body"] for e in events] == [r["body"] for r in found]
    for e in events:
        assert ALL | OCSF[e["class_uid"]] <= set(e), e
        assert e["category_uid"] == e["class_uid"] // 1000 and e["type_uid"] == e["class_uid"] * 100 + e["activity_id"]
        assert {"version", "product"} <= set(e["metadata"]) and e["time"] > 1_600_000_000_000
    assert {e["class_uid"] for e in events} == set(OCSF) - {0}
    assert len({e["metadata"]["uid"] for e in events}) == len(events)
    events = [e for e, r in zip(events, found, strict=True) if r["session"] == id]
    cells = [e["script"]["script_content"]["value"] for e in events if e["class_uid"] == 1009]
    assert cells[2] == "open('/etc/shadow')"
    assert [e["action_id"] for e in events if e["metadata"]["event_code"] == "question"] == [1, 2]
    assert "exclude" in audit("--ocsf", "--json").stderr


# ---------------------------------------------------------------- keys and heads of the user's own


@pytest.fixture
def key(outside: Path) -> Path:
    path = outside / "signing-key"
    path.write_text(os.urandom(32).hex() + "\n")
    path.chmod(0o600)
    return path


def test_a_key_from_elsewhere_signs_the_log(key: Path, state: Path, workspace: Path, audit: Audit) -> None:
    """A log has one key: with another one nothing is added to it, and nothing happens."""
    with Client(log_level=0, audit_key=str(key)) as c, c.session(workspace=workspace, audit="strict") as s:
        s.run("1")
        out = s.run(f"open({str(key)!r}).read()")
        assert out.status == "error" and key.read_text().strip() not in str(out.events)
    assert not (state / "key").exists()
    assert audit("verify", "--audit-key", str(key)).returncode == audit("verify").returncode == 0
    with pytest.raises(CellgateError, match="begun with another key"), Client(log_level=0) as c:
        c.session(workspace=workspace, audit="strict")
    key.write_text(os.urandom(32).hex() + "\n")
    assert "signature that was not made with" in audit("verify", "--audit-key", str(key)).stderr
    key.chmod(0o644)
    with pytest.raises(CellgateError, match="mode 0600"), Client(log_level=0, audit_key=str(key)) as c:
        c.session(workspace=workspace, audit="strict")


def test_heads_are_appended_to_a_file(state: Path, outside: Path, workspace: Path, audit: Audit) -> None:
    heads = outside / "heads"
    with Client(log_level=0, audit_head=str(heads)) as c:
        for _ in range(2):
            with c.session(workspace=workspace, audit="strict") as s:
                for i in range(40):
                    s.run(str(i))
    lines = [json.loads(line) for line in heads.read_text().splitlines()]
    assert len(lines) >= 4 and lines[-1] == json.loads(audit("head").stdout)
    assert audit("verify", "--head", str(heads)).returncode == 0
    with sqlite3.connect(state / "audit-000001.sqlite") as db:
        db.execute("DELETE FROM record WHERE seq > 100")
        db.execute("DELETE FROM head WHERE seq > 100")
    db.close()
    assert audit("verify").returncode == 0
    assert "is missing: its head was kept" in audit("verify", "--head", str(heads)).stderr


@pytest.fixture
def collector() -> Iterator[web.Posts]:
    with web.posts() as server:
        yield server


def test_heads_are_sent_to_a_url(state: Path, workspace: Path, collector: web.Posts, audit: Audit) -> None:
    with Client(log_level=0, audit_head=collector.url) as c, c.session(workspace=workspace, audit="strict") as s:
        for i in range(40):
            s.run(str(i))
    assert json.loads(collector.bodies[-1]) == json.loads(audit("head").stdout)
    assert "head.unsent" not in kinds(records(audit))


@pytest.mark.parametrize("mode", ["strict", "best-effort"])
def test_heads_that_cannot_be_sent(
    mode: str,
    state: Path,
    workspace: Path,
    collector: web.Posts,
    audit: Audit,
) -> None:
    """Strict: nothing happens until one was taken; best effort: the host and the log say so once."""
    collector.status = 503
    with Client(log_level=0, audit_head=collector.url) as c, c.session(workspace=workspace, audit=mode) as s:
        outs = [s.run(str(i)) for i in range(40)]

        def said() -> list[str]:
            return [e.text for o in outs for e in o.events if "heads of the audit log cannot be sent" in e.text]

        processes.eventually(lambda: outs.append(s.run("1")) or bool(said()))
        assert "status 503" in said()[0]
        if mode == "strict":
            assert outs[-1].status == "cancelled"
            collector.status = 200
            processes.eventually(lambda: s.run("2").status == "ok")
        else:
            outs += [s.run("2"), s.run("3")]
            assert len(said()) == 1 and all(o.status == "ok" for o in outs)
    assert kinds(records(audit)).count("head.unsent") >= 1
    assert audit("verify").returncode == 0


@pytest.mark.parametrize("option", ["--audit-key", "--audit-head"])
def test_files_of_the_log_are_not_where_cells_write(option: str, prefix: Path, workspace: Path, key: Path) -> None:
    (workspace / "key").write_text(key.read_text())
    argv = [prefix / "bin/cellgate", "run", "--audit", "strict", option, "key", "-c", "print(1)"]
    done = subprocess.run(argv, cwd=workspace, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and f"{option} key is in the workspace" in done.stderr
    argv[2:4] = []
    done = subprocess.run(argv, cwd=workspace, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and f"{option} needs --audit" in done.stderr


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_what_cells_put_in_the_place_of_heads_is_not_opened(
    kind: str, prefix: Path, workspace: Path, tmp_path: Path
) -> None:
    """It is refused, but neither waited for nor made elsewhere before."""
    heads = workspace / "heads"
    if kind == "fifo":
        os.mkfifo(heads)
    else:
        heads.symlink_to(tmp_path / "made")
    argv = [prefix / "bin/cellgate", "run", "--audit", "strict", "--audit-head", "heads", "-c", "print(1)"]
    done = subprocess.run(argv, cwd=workspace, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "--audit-head heads" in done.stderr
    assert not (tmp_path / "made").exists()


def test_run_signs_with_a_key_and_sends_heads(
    prefix: Path,
    state: Path,
    workspace: Path,
    key: Path,
    outside: Path,
    audit: Audit,
) -> None:
    options = ["--audit", "strict", "--audit-key", key, "--audit-head", outside / "heads"]
    argv = [prefix / "bin/cellgate", "run", *options, "-c", "print(1)"]
    done = subprocess.run(argv, cwd=workspace, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    words = ["verify", "--audit-key", str(key), "--head", str(outside / "heads")]
    processes.eventually(lambda: audit(*words).returncode == 0)


def test_rules_of_files_are_in_the_log(state: Path, workspace: Path, mark: Path, tmp_path: Path, audit: Audit) -> None:
    """Which one has accepted or refused; what a program accepts has no rule."""
    policy = tmp_path / "policy.json"
    rules = [
        {"id": "good", "decision": "allow", "server": "echo", "arguments": {"/text": {"equals": "a"}}},
        {"id": "bad", "decision": "deny", "server": "echo", "arguments": {"/text": {"equals": "b"}}},
        {"decision": "ask", "server": "echo"},
    ]
    policy.write_text(json.dumps({"rules": rules}))
    with Client(log_level=0) as c, c.session(workspace=workspace, audit="strict", policies=[policy]) as s:
        add_echo(s, mark)
        s.run("from mcptools.echo import echo\necho.run(text='a')")
        s.run("echo.run(text='b')")
        s.run("echo.run(text='c')", lambda e: True)
    questions = [r["body"] for r in records(audit) if r["kind"] == "question"]
    assert [q["decision"] for q in questions] == ["accept", "reject", "accept"]
    allowed, refused, asked = (q["reason"] for q in questions)
    assert allowed.startswith("rule 1 (good) of") and "rule 2 (bad)" in refused and asked == ""


@pytest.mark.parametrize("mode", ["strict", "best-effort"])
def test_run_records_what_a_rule_decides(
    mode: str,
    prefix: Path,
    state: Path,
    workspace: Path,
    mark: Path,
    tmp_path: Path,
    audit: Audit,
) -> None:
    servers = tmp_path / "mcp.json"
    servers.write_text(json.dumps({"mcpServers": echo(mark)}))
    code = "from mcptools.echo import echo\nprint(echo.run(text='x'))"
    argv = [prefix / "bin/cellgate", "run", "--audit", mode, "--mcp", servers, "--approve", "echo.*", "-c", code]
    done = subprocess.run(argv, cwd=workspace, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (question,) = [r["body"] for r in records(audit) if r["kind"] == "question"]
    assert (question["decision"], question["question"]["tool"]) == ("accept", "echo")
    assert question["reason"] == "rule echo.*"
    argv[3] = "sometimes"
    done = subprocess.run(argv, cwd=workspace, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "strict or best-effort" in done.stderr
