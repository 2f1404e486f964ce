"""CPython's own tests of programs that Python starts, inside of kernels: with exec "ask" and every question approved,
and with exec "allow". What passes with "allow" must pass with "ask".

    scripts/cpython_programs.py FOLDER [MODULE...]

FOLDER is the package `test` of the Python that cellgate was built with (Debian: usr/lib/python3.11/test of the package
libpython3.11-testsuite, unpacked). Files that it lacks come from the installed Python. CG_PREFIX is cellgate's prefix.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODULES = (
    "test.test_subprocess",
    "test.test_os",
    "test.test_pty",
    "test.test_popen",
    "test.test_asyncio.test_subprocess",
    "test.test_multiprocessing_spawn",
)
LONGEST_S = 1500
# They look at the flag itself, which is off while a host is asked: a parent must not wait in vfork().
EXCEPTIONS = (
    "test.test_subprocess.ProcessTestCase.test__use_vfork",
    "test.test_subprocess.ProcessTestCaseNoPoll.test__use_vfork",
)
# Runs a module in the kernel, and writes {TEST: outcome} into the workspace.
CELL = """
import json, os, sys, unittest
sys.path.insert(0, os.getcwd() + "/lib")
os.environ["PYTHONPATH"] = os.getcwd() + "/lib"
os.environ["TMPDIR"] = "/tmp"
for name in [n for n in sys.modules if n == "test" or n.startswith("test.")]: del sys.modules[name]
from test import support
support.verbose = False
class Result(unittest.TestResult):
    outcomes = {}
    def startTest(self, test):
        super().startTest(test); open("running", "w").write(test.id())
    def note(self, test, outcome):
        if self.outcomes.get(test.id()) != "failed": self.outcomes[test.id()] = outcome
    def addSuccess(self, test): self.note(test, "passed")
    def addError(self, test, e): self.note(test, "failed"); self.text(test, e)
    def addFailure(self, test, e): self.note(test, "failed"); self.text(test, e)
    def addSkip(self, test, why): self.note(test, "skipped")
    def addExpectedFailure(self, test, e): self.note(test, "passed")
    def addUnexpectedSuccess(self, test): self.note(test, "failed")
    def addSubTest(self, test, sub, e):
        if e is not None: self.note(test, "failed"); self.text(sub, e)
    def text(self, test, e): open("failures", "a").write(f"== {test}\\n{self._exc_info_to_string(e, self._ok)}\\n")
    class _ok: failureException = AssertionError
result = Result()
try:
    unittest.defaultTestLoader.loadTestsFromName(MODULE).run(result)
finally:
    json.dump(result.outcomes, open("outcomes", "w"))
"""


def run(module: str, mode: str, folder: Path, work: Path) -> dict[str, str]:
    """The outcome of each test."""
    shutil.rmtree(work, ignore_errors=True)
    (work / "lib").mkdir(parents=True)
    for source in (Path(os.__file__).parent / "test", Path(f"/usr/lib/python3.{sys.version_info.minor}/test"), folder):
        if source.is_dir():
            shutil.copytree(source, work / "lib/test", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    cellgate = Path(os.environ.get("CG_PREFIX", "/usr/local")) / "bin/cellgate"
    argv = [cellgate, "run", "--json", "--exec", mode, "--workspace", work, "-c", f"MODULE = {module!r}\n{CELL}"]
    asked, end = 0, time.monotonic() + LONGEST_S
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["type"] == "approval_request":
                asked += 1
                process.stdin.write(json.dumps({"approval": event["approval"], "accept": True}) + "\n")
                process.stdin.flush()
            elif event["type"] in ("kernel_died", "session_closed", "error"):
                print(f"  {event['type']}: {str(event)[:400]}", file=sys.stderr)
            if event["type"] == "result" or time.monotonic() > end:
                break
        process.stdin.close()
        process.kill()
    found = work / "outcomes"
    if not found.exists():
        print(f"  {module} did not end: in {(work / 'running').read_text()}", file=sys.stderr)
    outcomes = json.loads(found.read_text()) if found.exists() else {}
    counts = {o: list(outcomes.values()).count(o) for o in ("passed", "failed", "skipped")}
    print(f"{module}, {mode}: {counts}, {asked} questions", flush=True)
    return outcomes


def main() -> int:
    os.environ["CELLGATE_PRIVATE"] = "1"  # no supervisor that stays
    folder, modules = Path(sys.argv[1]).resolve(), sys.argv[2:] or MODULES
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="cellgate-cpython-", dir=Path.home()) as temporary:
        for module in modules:
            allow = run(module, "allow", folder, Path(temporary) / "allow")
            ask = run(module, "ask", folder, Path(temporary) / "ask")
            failures = Path(temporary) / "ask/failures"
            lost = [t for t, o in allow.items() if o == "passed" and ask.get(t) != "passed" and t not in EXCEPTIONS]
            for test in lost:
                print(f"  only with allow: {test} ({ask.get(test, 'did not run')})")
            if lost and failures.exists():
                print(failures.read_text())
            wrong += len(lost) + (not allow)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
