"""Known limits of docs/security.md: if one of these fails, the sandbox protects more than the page says."""

import os

from .conftest import Box


def test_a_hidden_file_that_is_replaced_outside(box: Box) -> None:
    box.file("secret.txt", "first\n")
    box.file("new", "second\n")
    script = "cat secret.txt; echo ready; read go; cat secret.txt"
    p = box.popen("-c", script, settings=box.settings({"denyRead": ["secret.txt"]}))
    assert p.stdin and p.stdout
    with p:
        assert p.stdout.readline() == "ready\n"
        os.rename(box.work / "new", box.work / "secret.txt")
        out, _ = p.communicate("go\n", timeout=box.timeout)
    assert out == "second\n"
    # Processes that start later cannot read it.
    assert box.sh("cat secret.txt", {"denyRead": ["secret.txt"]}).stdout == ""


def test_a_file_that_appears_under_a_patterns_name(box: Box) -> None:
    box.file("sub/there.pem", "first\n")
    script = "cat sub/there.pem; echo secret > sub/later.pem; cat sub/later.pem"
    assert box.sh(script, {"denyRead": ["**/*.pem"]}).stdout == "secret\n"


def test_a_file_that_appears_under_a_denied_name(box: Box) -> None:
    assert box.sh("echo secret > later; cat later", {"denyRead": ["later"]}).stdout == "secret\n"
    (box.work / "later").unlink()
    (box.work / "folder").mkdir()
    assert box.sh("echo secret > folder/later; cat folder/later", {"denyRead": ["folder"]}).stdout == ""


def test_a_link_that_was_made_inside(box: Box) -> None:
    box.file(box.out / "target", "outside\n")
    assert box.sh(f"ln -s {box.out}/target link && ! echo changed > link").returncode == 0
    assert (box.out / "target").read_text() == "outside\n"
    assert (box.work / "link").read_text() == "outside\n"  # followed by this test, outside


def test_a_link_above_an_entry_of_another_sandbox(box: Box) -> None:
    for name in ("above/entry", "entry"):
        box.folder(box.work / name)
        box.folder(box.out / name)
    script = f"for f in above entry; do mv $f old-$f && ln -s {box.out}/$f $f; done"
    assert box.sh(script).returncode == 0
    other = box.folder(box.base / "other")
    for name, changed in (("above/entry", True), ("entry", False)):
        settings = box.settings({"allowWrite": [str(box.work / name)]})
        box.run("-c", f"touch {box.out}/{name}/file", settings=settings, cwd=other)
        assert (box.out / name / "file").exists() is changed
