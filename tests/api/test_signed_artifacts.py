"""Manifests of files that cells made: what is signed, who can tell, and what copies of them can do."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cellgate_api import CellgateError, Client, Session

from .test_audit import writer_of

Command = Callable[..., "subprocess.CompletedProcess[str]"]
HELLO = hashlib.sha256(b"hello").hexdigest()


@pytest.fixture(autouse=True)
def state(outside: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(outside))
    monkeypatch.setenv("CELLGATE_PRIVATE", "1")
    return outside / "cellgate/audit"


@pytest.fixture
def signing(workspace: Path) -> Iterator[Session]:
    with Client(log_level=0) as c, c.session(workspace=workspace, audit="strict", sign_artifacts=1) as s:
        yield s


@pytest.fixture
def made(signing: Session, workspace: Path, run_cellgate: Command, tmp_path: Path) -> tuple[str, Path]:
    """The execution of a cell that has made three files, and its manifest."""
    code = "import os\nos.makedirs('sub', exist_ok=True)\nfor n in ('a.txt', 'sub/b.txt', b'\\xff'): open(n, 'w').write('hello')"
    execution = signing.run(code).result.artifacts["signed"]["execution"]
    manifest = tmp_path / "manifest.json"
    manifest.write_text(run_cellgate("artifacts", execution, "--json").stdout)
    return execution, manifest


def test_a_manifest_of_each_cell(signing: Session, workspace: Path, run_cellgate: Command) -> None:
    found = signing.run("open('a.txt', 'w').write('hello')").result.artifacts
    assert "signed" not in signing.run("1").result.artifacts  # nothing to sign
    (event,) = (e for e in signing.client.events()["events"] if e["type"] == "artifact.signed")
    assert event["data"] == found["signed"] and event["execution_id"]
    file = {"path": f"{workspace}/a.txt", "size": 5, "sha256": HELLO}
    assert found["files"] == [file] and found["signed"].keys() == {"execution", "signature"}
    session, cell = found["signed"]["execution"].split("/")
    manifest = json.loads(run_cellgate("artifacts", f"{session[:8]}/{cell}", "--json").stdout)
    assert manifest["files"] == [file] and manifest["signature"] == found["signed"]["signature"]
    listed = run_cellgate("artifacts").stdout.splitlines()
    assert len(listed) == 1 and f"{session}/{cell}  1 file" in listed[0]
    assert f"{HELLO}            5  {workspace}/a.txt\n" == run_cellgate("artifacts", f"{session}/{cell}").stdout
    assert run_cellgate("artifacts", f"{session}/{cell}0").returncode == 2
    signing.close()
    assert run_cellgate("audit", "verify").returncode == 0


def test_other_languages(workspace: Path) -> None:
    options = {"workspace": workspace, "audit": "strict", "sign_artifacts": 1}
    with Client(log_level=0) as c:
        for language, code in (("shell", "printf hello > shell"), ("node", "require('fs').writeFileSync('node', 'hello')")):
            with c.session(**options, language=language) as s:
                found = s.run(code).result.artifacts
            assert [f["path"] for f in found["files"]] == [f"{workspace}/{language}"] and found["signed"]


def test_files_of_the_shell_itself_are_none_of_its_cells(workspace: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    with Client(log_level=0) as c, c.session(workspace=workspace, language="shell") as s:
        s.add_functions("host", [{"name": "double", "description": "Doubles.", "inputSchema": schema}])
        s.execute("mcptools host double a=21; printf hello > /tmp/b.txt", artifacts=1)
        s.give(s.until("function_call")[-1].approval, 42)
        found = s.until("result")[-1].artifacts["files"]
        assert [f["path"] for f in found] == ["/tmp/b.txt"]
        assert "In[2]: line 1: nothing" in s.run("nothing_of_this_name").stderr


def test_a_secret_in_a_name(workspace: Path, run_cellgate: Command, tmp_path: Path) -> None:
    """The name is left out and not changed, so that no other file can be taken for it; "sha256" stays a member."""
    env = ["API_TOKEN=secret-of-mine", "OTHER_PASSWORD=sha256,path"]
    with Client(log_level=0) as c, c.session(workspace=workspace, audit="strict", sign_artifacts=1, env=env) as s:
        code = "import os\nfor n in ('x-secret-of-mine', 'sha256,path', 'a.txt'): open(n, 'w').write('hello')"
        execution = s.run(code).result.artifacts["signed"]["execution"]
    text = run_cellgate("artifacts", execution, "--json").stdout
    files = json.loads(text)["files"]
    assert "secret-of-mine" not in text and all(f["sha256"] == HELLO and f["size"] == 5 for f in files)
    names = sorted((f.get("path"), f.get("path_redacted")) for f in files if "path" not in f)
    assert names == [(None, f"{workspace}/***"), (None, f"{workspace}/x-***")]
    (workspace / "x-***").write_text("hello")
    r = run_cellgate("artifacts", execution, "--out", tmp_path / "out")
    assert r.returncode == 1 and "1 of 3 files" in r.stdout and "a secret in it" in r.stderr
    assert [p.name for p in (tmp_path / "out").rglob("*") if p.is_file()] == ["a.txt"]


def test_verify(made: tuple[str, Path], workspace: Path, run_cellgate: Command, tmp_path: Path) -> None:
    execution, manifest = made
    same, other = workspace / "a.txt", tmp_path / "other"
    other.write_text("hello!")
    for words in ([], [manifest], [HELLO], [HELLO.upper()]):
        good = run_cellgate("verify", same, *words)
        assert (good.returncode, good.stderr) == (0, "") and HELLO in good.stdout
        bad = run_cellgate("verify", other, *words)
        assert (bad.returncode, bad.stdout) == (1, "")
        assert hashlib.sha256(b"hello!").hexdigest() in bad.stderr
    assert f"{execution}, signed at 20" in run_cellgate("verify", same).stdout
    for words in (["nothing"], [tmp_path], [same, "nothing"], [], [same, manifest, "third"]):
        assert run_cellgate("verify", *words).returncode == 2
    os.mkfifo(tmp_path / "fifo")
    assert run_cellgate("verify", tmp_path / "fifo").returncode == 2


def test_each_change_of_a_manifest_is_found(made: tuple[str, Path], workspace: Path, run_cellgate: Command) -> None:
    _, manifest = made
    text = manifest.read_text()
    (workspace / "a.txt").write_text("hello!")
    forged = hashlib.sha256(b"hello!").hexdigest()
    changes = [
        text.replace(HELLO, forged),
        text.replace('"files":[', f'"files":[{{"path":"/x","size":6,"sha256":"{forged}"}},'),
        text.replace('"time":', f'"files":[{{"sha256":"{forged}"}}],"time":'),
        text.rstrip()[:-1] + f',"files":[{{"sha256":"{forged}"}}]}}',
        text.replace(',"signature":"', f',"files":[{{"sha256":"{forged}"}}],"signature":"'),
        text[: text.index(',"signature"')].replace(HELLO, forged) + "}",
        text.rstrip() + "\0",
        text + text,
        " " + text,
        "\ufeff" + text,
        "{}",
        "",
    ]
    for change in changes:
        assert change != text
        manifest.write_text(change)
        r = run_cellgate("verify", workspace / "a.txt", manifest)
        assert r.returncode == 1 and "no manifest that was signed with this key" in r.stderr


def test_only_the_right_key_counts(
    made: tuple[str, Path], workspace: Path, run_cellgate: Command, tmp_path: Path
) -> None:
    """A manifest that somebody has signed with a key of their own proves nothing here."""
    _, manifest = made
    key = json.loads(run_cellgate("audit", "head").stdout or "{}").get("key")
    if not key:  # nothing of the session has been signed yet but manifests
        first = json.loads(run_cellgate("audit", "--json").stdout.splitlines()[0])
        key = first["body"]["key"]
    elsewhere = {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}
    words = ("verify", workspace / "a.txt", manifest)
    assert run_cellgate(*words, env=elsewhere).returncode == 2  # no log, no key
    assert run_cellgate(*words, "--key", key, env=elsewhere).returncode == 0
    assert run_cellgate(*words, "--key", "0" * 64, env=elsewhere).returncode == 1
    assert run_cellgate(*words, "--key", key[:-1], env=elsewhere).returncode == 2
    assert "for a MANIFEST" in run_cellgate("verify", workspace / "a.txt", "--key", key).stderr
    assert "for a MANIFEST" in run_cellgate("verify", workspace / "a.txt", HELLO, "--key", key).stderr
    other = run_cellgate("run", "--audit", "strict", "--workspace", tmp_path, "-c", "1", env=elsewhere)
    assert other.returncode == 0, other.stderr
    assert run_cellgate(*words, env=elsewhere).returncode == 1


def test_copies(made: tuple[str, Path], workspace: Path, run_cellgate: Command, tmp_path: Path) -> None:
    execution, _ = made
    out = tmp_path / "out"
    r = run_cellgate("artifacts", execution, "--out", out)
    assert (r.returncode, r.stdout) == (0, f"3 of 3 files, as they were signed, in {out}\n")
    assert sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()) == [
        "a.txt",
        "sub/b.txt",
        "\udcff",
    ]
    (out / "a.txt").write_text("mine")
    r = run_cellgate("artifacts", execution, "--out", out)
    assert r.returncode == 1 and "a.txt: there is a file of its name already, which is not replaced" in r.stderr
    assert (out / "a.txt").read_text() == "mine"
    (workspace / "a.txt").write_text("changed")
    (workspace / "sub/b.txt").unlink()
    os.mkfifo(workspace / "sub/b.txt")
    r = run_cellgate("artifacts", execution, "--out", tmp_path / "more")
    assert r.returncode == 1 and "a.txt: it is not what was signed any more" in r.stderr
    assert "b.txt is no regular file" in r.stderr and "1 of 3 files, as they were signed" in r.stdout
    assert [p.name for p in (tmp_path / "more").rglob("*") if p.is_file()] == ["\udcff"]


def test_copies_follow_no_link(made: tuple[str, Path], workspace: Path, run_cellgate: Command, tmp_path: Path) -> None:
    """Neither to other files of the same content, nor out of the folder."""
    execution, _ = made
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    for folder in (out, elsewhere):
        folder.mkdir()
    (elsewhere / "hello").write_text("hello")
    (out / "sub").symlink_to(elsewhere)
    (out / "a.txt").symlink_to(elsewhere / "new")
    r = run_cellgate("artifacts", execution, "--out", out)
    assert r.returncode == 1 and "1 of 3 files" in r.stdout
    assert [p.name for p in elsewhere.iterdir()] == ["hello"]
    (tmp_path / "link").symlink_to(elsewhere)
    for folder in ("link", "link/", "link/sub"):
        r = run_cellgate("artifacts", execution, "--out", f"{tmp_path}/{folder}")
        assert r.returncode == 2 and "a part of it is a link" in r.stderr
    assert [p.name for p in elsewhere.iterdir()] == ["hello"]
    (workspace / "a.txt").unlink()
    (workspace / "a.txt").symlink_to(elsewhere / "hello")
    (workspace / "sub").rename(workspace / "sub2")
    (workspace / "sub").symlink_to("sub2")
    r = run_cellgate("artifacts", execution, "--out", tmp_path / "more")
    assert r.returncode == 1 and "1 of 3 files" in r.stdout


def test_a_file_that_grows_while_it_is_copied(
    made: tuple[str, Path], workspace: Path, run_cellgate: Command, tmp_path: Path
) -> None:
    execution, _ = made
    with (workspace / "a.txt").open("r+b") as file:
        file.truncate(1 << 43)  # sparse: reading it all would take hours
    r = run_cellgate("artifacts", execution, "--out", tmp_path / "out")
    assert r.returncode == 1 and "a.txt: it is not what was signed any more" in r.stderr
    assert not (tmp_path / "out/a.txt").exists()


def test_what_is_not_the_cell_s_content_is_not_signed(signing: Session, workspace: Path, outside: Path) -> None:
    (outside / "secret").write_text("s")
    found = signing.run(
        f"import os\nos.symlink({str(outside / 'secret')!r}, 'link')\nos.mkfifo('fifo')"
    ).result.artifacts
    assert found == {"files": []}
    big = signing.run("open('big', 'w').truncate(65 << 20)").result.artifacts
    assert [f.keys() for f in big["files"]] == [{"path", "size"}] and big["signed"]


def test_options_that_contradict_each_other(workspace: Path, run_cellgate: Command) -> None:
    with Client(log_level=0) as c:
        for more in ({}, {"audit": "strict", "sandbox": 1}):
            with pytest.raises(CellgateError, match='"sign_artifacts" needs "audit" and a sandbox'):
                c.session(workspace=workspace, sign_artifacts=1, **more)
    for words, why in (([], "needs --audit"), (["--audit", "strict", "--no-sandbox"], "needs a sandbox")):
        r = run_cellgate("run", "--sign-artifacts", *words, "-c", "1")
        assert r.returncode == 2 and why in r.stderr


def test_a_log_that_cannot_be_written_signs_nothing(state: Path, workspace: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_text("no folder")
    with Client(log_level=0) as c, c.session(workspace=workspace, audit="best-effort", sign_artifacts=1) as s:
        found = s.run("open('a', 'w').close()").result.artifacts
    assert "signed" not in found and "audit" in found["unsigned"]


def test_after_a_killed_writer_another_one_signs(signing: Session) -> None:
    signing.run("1")
    os.kill(writer_of(signing.client), signal.SIGKILL)
    states = [signing.run(f"open('{i}', 'w').close()").result.artifacts for i in range(3)]
    assert "signed" in states[-1]


def test_the_fronts(workspace: Path, run_cellgate: Command) -> None:
    words = ("run", "--workspace", workspace, "--audit", "strict", "--sign-artifacts", "-c", "open('a', 'w').close()")
    assert "] made or changed: signed as " in run_cellgate(*words).stderr
    r = run_cellgate(*words, "--json")
    (result,) = [line for line in map(json.loads, r.stdout.splitlines()) if line["type"] == "result"]
    assert result["artifacts"]["signed"]["execution"].endswith("/1")
