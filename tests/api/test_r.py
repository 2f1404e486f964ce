"""R, by Debian's r-cran-irkernel: `language="jupyter:ir"`."""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cellgate_api import Client, Session


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    if not shutil.which("R"):
        pytest.skip("R is not installed")
    if subprocess.run(["R", "--slave", "-e", "library(IRkernel)"], capture_output=True, check=False).returncode:
        pytest.skip("R has no package IRkernel (r-cran-irkernel)")


@pytest.fixture
def session(client: Client, workspace: Path) -> Iterator[Session]:
    with client.session(workspace=workspace, language="jupyter:ir") as s:
        yield s


def shown(session: Session, code: str) -> str:
    """IRkernel shows values as displays, not as results."""
    out = session.run(code)
    (data,) = [e.json["data"] for e in out.events if e.type == "display_data"]
    return str(data["text/plain"])


def test_cells(session: Session) -> None:
    out = session.run("x <- c(1, 2, 3)\ncat('a\\n'); message('b'); sum(x)")
    assert (out.status, out.stdout, out.stderr) == ("ok", "a\n", "b\n\n"), out
    assert shown(session, "mean(x)") == "[1] 2"
    out = session.run("f <- function() stop('no <b>')\nf()")
    assert out.error and "no <b>" in out.error["evalue"], out
    assert session.run("1 +").error
    assert shown(session, "écrit <- 'ü'; écrit") == '[1] "ü"'


def test_an_interrupt_keeps_the_state(session: Session) -> None:
    session.run("x <- 5")
    for code in ("Sys.sleep(30)", "while (TRUE) {}"):
        out = session.run(code, timeout_ms=1000)
        assert out.status == "timeout" and "variables are lost" not in out.stderr, out
        assert shown(session, "x") == "[1] 5"


def test_plots(session: Session) -> None:
    out = session.run("plot(1:3)")
    (shown,) = [e.json for e in out.events if e.type == "display_data"]
    assert base64.b64decode(shown["data"]["image/png"])[:4] == b"\x89PNG", out


def test_questions(session: Session) -> None:
    session.execute("name <- readline('who? '); cat(name)", allow_stdin=True)
    assert session.until("input_request")[-1].json["prompt"] == "who? "
    session.input("me")
    assert session.until("stream")[-1].text == "me"
    assert session.until("result")[-1].status == "ok"


def test_the_sandbox(session: Session, workspace: Path) -> None:
    assert shown(session, "writeLines('a', 'made'); readLines('made')") == '[1] "a"'
    assert (workspace / "made").read_text() == "a\n"
    for code in (
        "file('/etc/cellgate-test', 'w')",
        "socketConnection('192.0.2.1', 80, timeout=3)",
        "url('http://192.0.2.1/', 'r')",
    ):
        assert session.run(code).error, code
    out = session.run("cat(strrep('x', 1e6))")
    assert len(out.stdout) == 10**6, out
    assert session.run("tools::pskill(Sys.getpid(), 9)").error["ename"] == "KernelEnded"
    assert shown(session, "6 * 7") == "[1] 42"


def test_a_memory_limit(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, language="jupyter:ir", memory_bytes=512 << 20) as s:
        assert shown(s, "6 * 7") == "[1] 42"
        out = s.run("x <- rep(1, 5e8)")
        assert out.error, out
        assert shown(s, "6 * 7") == "[1] 42"


def test_its_program_is_a_script(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, language="jupyter:ir", exec="deny") as s:
        out = s.run("6 * 7")
        assert out.error and out.error["ename"] == "PermissionError" and "/usr/bin/R" in out.error["evalue"], out
