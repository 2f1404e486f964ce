"""What the repository may hold: texts, and the binary files that are listed here; nothing larger than 256 KiB."""

import fnmatch
import subprocess
from pathlib import Path

import pytest

LIMIT = 256 * 1024
BINARY = ("share/logos/*.png", "tests/fuzz/corpus/*")  # images; inputs of parsers


def objection(path: Path, name: str) -> str | None:
    """Why the file may not be tracked under this name, or None."""
    if path.is_symlink() or not path.exists():
        return None
    data = path.read_bytes()
    if len(data) > LIMIT:
        return f"{len(data)} bytes, more than {LIMIT}"
    if any(fnmatch.fnmatch(name, pattern) for pattern in BINARY):
        return None
    try:
        data.decode()
    except UnicodeDecodeError:
        return "binary: not UTF-8"
    return "binary: a NUL byte" if b"\0" in data else None


def test_tracked_files_are_listed_or_small_texts(repo: Path) -> None:
    p = subprocess.run(["git", "-C", repo, "ls-files", "-z"], capture_output=True, text=True, check=False)
    if p.returncode != 0:
        pytest.skip(f"not a git checkout: {p.stderr.strip()}")
    names = p.stdout.split("\0")[:-1]
    assert [(name, why) for name in names if (why := objection(repo / name, name))] == []
    assert [pattern for pattern in BINARY if not fnmatch.filter(names, pattern)] == []


def test_no_source_is_ignored(repo: Path) -> None:
    """A pattern of .gitignore must not leave a new source file out of a commit."""
    folders = ["src", "include", "python", "python_stubs", "tests"]
    argv = ["git", "-C", repo, "ls-files", "--others", "--ignored", "--exclude-standard", "--", *folders]
    p = subprocess.run(argv, capture_output=True, text=True, check=False)
    if p.returncode != 0:
        pytest.skip(f"not a git checkout: {p.stderr.strip()}")
    sources = (".c", ".h", ".py", ".mjs", ".bash", ".json", ".build")
    assert [name for name in p.stdout.splitlines() if name.endswith(sources)] == []


@pytest.mark.parametrize(
    ("name", "data", "refused"),
    [
        ("a.c", b"text\n", False),
        ("core", b"\x7fELF\0", True),
        ("a.txt", b"\xff\xfe", True),
        ("a.txt", b" " * LIMIT, False),
        ("a.txt", b" " * (LIMIT + 1), True),
        ("share/logos/a.png", b"\xff\0", False),
        ("share/logos/a.png", b"\xff" * (LIMIT + 1), True),
    ],
)
def test_binary_and_large_files_are_refused(tmp_path: Path, name: str, data: bytes, refused: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    assert (objection(path, name) is not None) == refused
