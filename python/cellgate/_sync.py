"""A folder that is copied to the machine of a client, and back. `cellgate run --sync` starts main().

Both sides are read and written by cellgate_kernel/sync.py in sandboxed kernels, the one here with the folder as its
workspace: what comes back from the other machine is read there alone, and can do what a cell of this machine can do.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from cellgate._core import Client, PathLike
from cellgate._errors import CellgateError
from cellgate._events import render
from cellgate._session import Session

_LIMIT = (1 << 30) + (64 << 20)  # of an archive: files and index, as cellgate_kernel/sync.py has them
_TRANSFER_S = 3600.0
_HERE = "/tmp/archive"  # in the sandbox, private
_REPORT = "/tmp/report"
# A new folder, into which the host puts all of its own, also names that cells may not write.
_SETTINGS = {
    "network": {"allowedDomains": [], "deniedDomains": []},
    "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
    "cellgate": {"writableNames": ["*"]},
}


class Sync:
    """A folder, and its copy on the machine of @client, whose changes close() brings back.

        with cellgate.Sync("project", node) as copy, cellgate.Session(copy.path, client=node) as session:
            session.run("open('result', 'w').write('42')")
        print(copy.report)

    Hidden names (docs/names.md) are not copied, and names that are never written do not come back. What has changed
    on both sides stays here, with the other version beside it. Close all sessions in the copy before close().
    """

    def __init__(
        self,
        folder: PathLike,
        client: Client,
        workspace: PathLike | None = None,
        *,
        tier: str | None = None,
        hide: Sequence[PathLike] = (),
    ) -> None:
        """`workspace`: the folder there in which the copy is made (default: as of a session), `tier`: of the sandbox
        there. `hide`: files of the folder that stay here, unread and unchanged; FileNotFoundError if there is none."""
        self.path = ""
        """The copy, on the other machine."""
        self.report: dict[str, Any] | None = None
        """After close(): paths, which the other machine has chosen. "changed" and "removed" on this side; "kept": what
        had changed here as well, with the name beside it that has the other version, None: it was removed there;
        "refused", with reasons; "skipped": what could not be read there; "left": the copy, where something was
        refused or it could not be removed, else None."""
        self._there: Session | None = None
        there = f"cellgate-sync-{secrets.token_hex(8)}"
        self._archive = f"{there}.archive"
        own = hide if isinstance(hide, str) else [Path(p).resolve(strict=True) for p in hide]
        self._here = Session(folder, tier="full", exec="deny", hide=own)
        try:
            _do(self._here, f"side = sync.Side('.', trusting=False); side.pack({_HERE!r})")
            self._there = Session(workspace, client=client, tier=tier, settings=_SETTINGS)
            self.path = str(PurePosixPath(_do(self._there, "import os; print(os.getcwd())"), there))
            self._there.files.mkdir(there, mode=0o700)  # modes are not copied
            self._move(self._here, _HERE, self._there, self._archive)
            self._archive = str(PurePosixPath(f"{self.path}.archive"))
            code = f"side = sync.Side({self.path!r}, trusting=True); r = side.apply({self._archive!r}); side.remember()"
            _do(self._there, f"{code}\nif r['refused']: raise OSError(str(r['refused'])[:500])")
        except BaseException:
            with contextlib.suppress(CellgateError):
                self._end(bool(self.path))
            raise

    def close(self) -> None:
        """Brings back what has changed in the copy, and removes it. Once."""
        there = self._there
        if self.report is not None or not there:
            return
        try:
            skipped = _do(there, f"side.pack({self._archive!r}); import json; print(json.dumps(side.skipped[:1000]))")
            self._move(there, self._archive, self._here, _HERE)
            _do(self._here, f"import json; open({_REPORT!r}, 'w').write(json.dumps(side.apply({_HERE!r})))")
            report = json.loads(self._here.files.read(_REPORT, limit=_LIMIT))
            kinds = {"changed": list, "removed": list, "kept": dict, "refused": dict}
            self.report = {name: kind(report[name]) for name, kind in kinds.items()}
            self.report |= {"skipped": list(json.loads(skipped)), "left": self.path if report["refused"] else None}
        except (ValueError, TypeError, LookupError, RecursionError) as e:
            raise CellgateError(f"what came back from {self.path} of the other machine is no list of changes") from e
        except (CellgateError, OSError) as e:
            raise CellgateError(f"{e}: not all was brought back from {self.path} of the other machine") from e
        finally:
            self._end(bool(self.report and not self.report["left"]))

    def __enter__(self) -> Sync:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _move(self, source: Session, path: str, to: Session, name: str) -> None:
        with tempfile.TemporaryDirectory(prefix="cellgate-sync-") as folder:
            file = Path(folder, "archive")
            source.files.download(path, file, limit=_LIMIT, timeout=_TRANSFER_S)
            source.files.remove(path)
            to.files.upload(file, name, mode=0o600, timeout=_TRANSFER_S)

    def _end(self, remove: bool) -> None:
        there, self._there = self._there, None
        try:
            if there and remove:
                try:
                    there.files.remove(self.path, timeout=_TRANSFER_S)
                except CellgateError:
                    if not self.report:
                        raise
                    self.report["left"] = self.path
            if there:
                with contextlib.suppress(CellgateError):  # it is gone, or the connection
                    there.files.remove(self._archive, timeout=_TRANSFER_S)
        finally:
            self._here.close()
            if there:
                there.close()


def _do(session: Session, code: str) -> str:
    """The output of a cell."""
    result = session.run(f"from cellgate_kernel import sync\n{code}", timeout=_TRANSFER_S, history=False)
    if not result.ok:
        error = result.error
        raise CellgateError(f"{error.ename}: {error.evalue}" if error else str(result.status))
    return result.stdout.rstrip("\n")


def _lines(report: dict[str, Any]) -> list[str]:
    """What a person has to know, with the names as JSON."""
    lines = [f"{len(report['changed'])} changed and {len(report['removed'])} removed in this folder"]
    for path, beside in report["kept"].items():
        other = f"the other version is {json.dumps(beside)}" if beside else "it was removed there"
        lines.append(f"{json.dumps(path)} has changed here as well, and was kept; {other}")
    lines += [f"{json.dumps(path)} was not brought back: {why}" for path, why in report["refused"].items()]
    lines += [f"{json.dumps(path)} could not be read there" for path in report["skipped"]]
    if report["left"]:
        lines.append(f"the copy is still there: {report['left']}")
    return lines


def main() -> None:
    """FOLDER WORKSPACE TIER N WORD*N HIDE...: prints the path of the copy; at the end of its input brings it back."""
    folder, workspace, tier, n, *words = sys.argv[1:]
    hide = [word for word in words[int(n) :] if os.path.exists(word)]  # others are no files, such as settings
    try:
        with (
            Client(connect=words[: int(n)]) as client,
            Sync(folder, client, workspace or None, tier=tier or None, hide=hide) as copy,
        ):
            if "\n" in copy.path:
                raise CellgateError("the folder on the other machine has a line break in its name")
            print(copy.path, flush=True)
            sys.stdin.buffer.read()
        lines = _lines(copy.report or {})
    except (CellgateError, OSError) as e:
        sys.exit(f"cellgate run: --sync {render(folder)}: {render(str(e), 2000)}")
    for line in lines if len(lines) <= 40 else [*lines[:40], f"and {len(lines) - 40} more"]:
        print(f"cellgate run: --sync: {render(line, 1000)}", file=sys.stderr)
