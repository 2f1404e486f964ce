"""The spare: a session started ahead is like any other, and only for who asked for its like."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import web
from cellgate_api import CellgateError, Client
from processes import by_age, children, eventually, named, words
from rounds import rounds


def kernels(client: Client) -> int:
    """Kernels' inits of the newest supervisor of this process."""
    return len(children(zygote_of()))


def zygote_of() -> int:
    """The zygote of that supervisor; 0 while there is none."""
    return next((p for p in children(_newest(children(os.getpid()))) if b"--zygote" in words(p)), 0)


def _newest(pids: list[int]) -> int:
    return by_age(pids)[-1]


def test_second_session_is_the_spare_and_starts_clean(tmp_path: Path) -> None:
    with Client() as c:
        first = c.session(workspace=tmp_path)
        assert first.run("x = 1; x").result.count == 1
        eventually(lambda: kernels(c) == 2)
        second = c.session(workspace=tmp_path)
        out = second.run("'x' in globals(), len(In), len(Out), _")
        assert out.value == "(False, 2, 0, '')"
        assert out.result.count == 1
        assert first.run("x").value == "1"
        first.close()
        second.close()


def test_its_first_cell_has_the_name_that_first_cells_have(tmp_path: Path) -> None:
    """The cell that the supervisor runs in it has left none."""
    cell = "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()"
    with Client() as c:
        for i in range(4):
            with c.session(workspace=tmp_path) as s:
                assert '"<Cell In[1]>", line 2' in s.run(cell).stderr
                time.sleep(i / 4)  # for the next one, to be ready: nothing shows when it has run its cell


@pytest.mark.parametrize("by_settings", [False, True])
def test_a_secret_that_came_after_the_spare_is_hidden(tmp_path: Path, by_settings: bool) -> None:
    """Made anew, or saved by an editor, which puts a new file in the old one's place."""
    options = {"settings": web.settings(filesystem={"denyRead": ["**/.env"]})} if by_settings else {}
    look = "open('.env').read()"
    with Client() as c:
        first = c.session(workspace=tmp_path, **options)
        eventually(lambda: kernels(c) == 2)
        (tmp_path / ".env").write_text("secret")
        second = c.session(workspace=tmp_path, **options)
        assert second.run(look).error is not None
        eventually(lambda: kernels(c) == 3)
        (tmp_path / "saved").write_text("another secret")
        (tmp_path / "saved").rename(tmp_path / ".env")
        third = c.session(workspace=tmp_path, **options)
        assert third.run(look).error is not None
        for s in (first, second, third):
            s.close()


def test_a_link_in_the_home_that_came_after_the_spare_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the home has is kept while its folders are unchanged, and only once they are not new."""
    home, work = tmp_path / "home", tmp_path / "work"
    (home / ".vim" / "plugin").mkdir(parents=True)
    work.mkdir()
    (work / "mine.vim").touch()
    monkeypatch.setenv("HOME", str(home))
    eventually(lambda: time.time() - (home / ".vim").stat().st_ctime > 5)
    with Client() as c:
        first = c.session(workspace=work)
        assert first.run("open('mine.vim', 'w').write('x')").value == "1"
        eventually(lambda: kernels(c) == 2)
        with c.session(workspace=work) as same:
            assert same.run("open('mine.vim', 'w').write('x')").value == "1"
        eventually(lambda: kernels(c) == 2)
        (home / ".vim" / "plugin" / "mine.vim").symlink_to(work / "mine.vim")
        with c.session(workspace=work) as later:
            assert later.run("open('mine.vim', 'w').write('x')").error is not None
        first.close()


def test_a_spare_that_is_replaced_at_any_moment_has_a_successor(tmp_path: Path) -> None:
    """It is asked for while it starts, while it runs its first cell, and after that."""
    settings = web.settings(filesystem={"denyRead": ["**/.env"]})
    with Client() as c, c.session(workspace=tmp_path, settings=settings):
        for i in range(rounds(24, 12)):
            eventually(lambda: kernels(c) == 2)
            time.sleep(i / 500)
            (tmp_path / f"{i}.d").mkdir()
            (tmp_path / f"{i}.d" / ".env").write_text("secret")
            with c.session(workspace=tmp_path, settings=settings) as s:
                assert s.run(f"open('{i}.d/.env').read()").error is not None


def test_cells_wait_for_the_successor_of_a_kernel_that_ended_while_it_started(tmp_path: Path) -> None:
    """Nothing has run in it, be it a successor itself or in the place of a spare. A kernel needs the tool server."""
    with Client(no_spare=1) as c, c.session(workspace=tmp_path) as s:
        assert s.run("1").value == "1"
        supervisor = _newest(children(os.getpid()))
        zygote = next(p for p in children(supervisor) if b"--zygote" in words(p))
        toolserver = named(children(named(children(supervisor), "cellgate-toolse")), "cellgate-toolse")
        ended = children(zygote)
        os.kill(toolserver, signal.SIGSTOP)
        try:
            kill(ended[0], signal.SIGKILL)
            s.until("kernel_died")
            cell = s.execute("2")
            for _ in range(2):
                eventually(lambda: serving(zygote, ended) != [])
                ended.extend(serving(zygote, ended))
                kill(ended[-1], signal.SIGKILL)
            eventually(lambda: serving(zygote, ended) != [])
        finally:
            os.kill(toolserver, signal.SIGCONT)
        result = s.until("result")[-1]
        assert (result.cell, result.status) == (cell, "ok"), result.text


def serving(zygote: int, ended: list[int]) -> list[int]:
    """Other inits, whose kernels have a thread for their connections."""
    mains = {init: children(init) for init in children(zygote) if init not in ended}
    return [init for init, pids in mains.items() if pids and len(threads_of(pids[0])) > 1]


def threads_of(pid: int) -> list[str]:
    """None where it has gone."""
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def kill(pid: int, sig: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sig)


def test_a_spare_that_ends_while_it_is_taken(tmp_path: Path) -> None:
    """Its kernel is stopped at any moment of its start, and is killed after the session was requested."""
    opened = 0
    with Client() as c, c.session(workspace=tmp_path):
        for i in range(rounds(24, 12)):
            eventually(lambda: kernels(c) == 2)
            init = _newest(children(zygote_of()))
            time.sleep(i / 1000)
            for pid in children(init):
                kill(pid, signal.SIGSTOP)
            timer = threading.Timer(0.05, kill, (init, signal.SIGKILL))
            timer.start()
            try:
                with c.session(workspace=tmp_path) as s:
                    s.execute("'on'")
                    while (e := s.until("result", 10000)[-1]).status != "ok":  # it had not been noticed yet
                        assert "the kernel ended" in e.text
                        s.execute("'on'")
                    opened += 1
            except CellgateError as e:
                assert "ended" in str(e)
                c.session(workspace=tmp_path).close()  # whose like is the next spare
            finally:
                timer.join()
    assert opened


def spare_init(client: Client, taken: set[int]) -> int:
    """The init of the kernel that is not among `taken`; 0 while there is none."""
    return next((p for p in children(zygote_of()) if p not in taken), 0)


def test_a_spare_that_ends_by_itself_has_a_successor(tmp_path: Path) -> None:
    with Client() as c, c.session(workspace=tmp_path) as first:
        assert first.run("1").value == "1"
        eventually(lambda: kernels(c) == 2)
        taken = set(by_age(children(zygote_of()))[:1])
        dead = spare_init(c, taken)
        kill(dead, signal.SIGKILL)
        eventually(lambda: spare_init(c, taken | {dead}) != 0)


def test_spares_that_keep_ending_are_not_restarted_without_end(tmp_path: Path) -> None:
    """The sixth has no successor, until a session is opened again."""
    log = tmp_path / "log"
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with log.open("wb") as f, Client(log_fd=f.fileno(), log_level=1) as c, c.session(workspace=workspace) as first:
        assert first.run("1").value == "1"
        seen = set(by_age(children(zygote_of()))[:1])
        for _ in range(6):
            eventually(lambda: spare_init(c, seen) != 0)
            spare = spare_init(c, seen)
            seen.add(spare)
            kill(spare, signal.SIGKILL)
        eventually(lambda: b"6 spare kernels in a row ended by themselves" in log.read_bytes())
        assert spare_init(c, seen) == 0
        with c.session(workspace=workspace) as second:
            assert second.run("1").value == "1"
            eventually(lambda: kernels(c) == 3)


def test_spare_is_only_for_the_same_options(tmp_path: Path) -> None:
    for name in ("work", "other"):
        (tmp_path / name).mkdir()
    given = {"workspace": tmp_path / "work", "env": ["A=1"]}
    with Client() as c, c.session(**given) as first:
        eventually(lambda: kernels(c) == 2)
        for options, cell, value in (
            ({"workspace": tmp_path / "other"}, "import os; os.getcwd()", repr(str(tmp_path / "other"))),
            ({"env": ["A=2"]}, "import os; os.environ['A']", "'2'"),
            ({"sandbox": 1}, "import os; os.getppid() > 2", "True"),  # inside of a sandbox the parent is init
        ):
            with c.session(**given | options) as s:
                assert s.run(cell).value == value
        assert first.run("1").value == "1"


def test_no_spare_when_it_is_not_wanted() -> None:
    with Client(no_spare=1) as c, c.session() as s, c.session() as t:
        assert s.run("1").value == t.run("1").value == "1"
        assert kernels(c) == 2


def test_workspace_that_went_away(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    with Client() as c:
        with c.session(workspace=gone):
            eventually(lambda: kernels(c) == 2)
        gone.rmdir()
        gone.mkdir()  # another folder with the same name: the spare's is not it
        with c.session(workspace=gone) as s:
            assert s.run("open('made', 'w').write('x')").value == "1"
        assert (gone / "made").exists()
