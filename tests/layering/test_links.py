"""Linked libraries and exported symbols, as designed (docs/architecture.md), read from the installed files."""

import re
import subprocess
from pathlib import Path

import pytest

# Libraries that exactly one program may need, by the start of their name.
RESERVED = {
    "libpython": {"cellgate-kernel"},
    "libcurl": set(),
    "libsqlite3": {"cellgate-audit"},
    "libmicrohttpd": {"cellgate-mcp-http", "cellgate-node"},
    "libgnutls": {"cellgate-mcp-http"},
    "libzmq": {"cellgate-cli"},
    # Linked statically: packages in a kernel's environment bring their own, which must not be replaced.
    "libpcre2": set(),
}
PROGRAMS = {
    "cellgate",
    "cellgate-audit",
    "cellgate-cli",
    "cellgate-egress",
    "cellgate-kernel",
    "cellgate-mcp-http",
    "cellgate-post",
    "cellgate-search",
    "cellgate-selftest",
    "cellgate-supervisor",
    "cellgate-toolserver",
}


def readelf(*args: str | Path) -> str:
    return subprocess.run(
        ["readelf", "-W", *map(str, args)], check=True, capture_output=True, text=True, timeout=30
    ).stdout


def is_elf(path: Path) -> bool:
    if not path.is_file() or path.is_symlink():
        return False
    with path.open("rb") as f:
        return f.read(4) == b"\x7fELF"


@pytest.fixture(scope="module")
def binaries(prefix: Path) -> dict[str, Path]:
    """Every program and library that cellgate installs, by name. The kernels' environment is not cellgate's own."""
    found = {}
    for path in prefix.rglob("*"):
        if "kernel-env" not in path.parts and "site-packages" not in path.parts and is_elf(path):
            found[path.name] = path
    return found


@pytest.fixture(scope="module")
def library(binaries: dict[str, Path]) -> Path:
    return next(p for n, p in binaries.items() if n.startswith("libcellgate.so"))


def needed(path: Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", path)))


def test_all_programs_are_installed(binaries: dict[str, Path]) -> None:
    assert set(binaries) >= PROGRAMS


@pytest.mark.parametrize("reserved", RESERVED)
def test_reserved_libraries(binaries: dict[str, Path], reserved: str) -> None:
    users = {name for name, path in binaries.items() if any(lib.startswith(reserved) for lib in needed(path))}
    assert users <= RESERVED[reserved]


def test_kernel_links_libpython(binaries: dict[str, Path]) -> None:
    """The table above could not fail if nothing were linked at all."""
    assert any(lib.startswith("libpython") for lib in needed(binaries["cellgate-kernel"]))


def test_library_brings_nothing_reserved_with_it(library: Path) -> None:
    """Not even through another library: a host must not get Python or curl by linking libcellgate."""
    out = subprocess.run(["ldd", str(library)], check=True, capture_output=True, text=True, timeout=30).stdout
    assert not [line for line in out.splitlines() if any(r in line for r in RESERVED)]


def declared_functions(header: str) -> set[str]:
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    return set(re.findall(r"^CG_API\b[^;(]*?(\w+)\s*\(", header, flags=re.M))


def test_library_exports_what_the_header_declares(repo: Path, library: Path) -> None:
    declared = declared_functions((repo / "include/cellgate.h").read_text())
    assert {"cg_client_open", "cg_free"} <= declared  # the pattern still finds them
    out = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True, timeout=30
    )
    exported = {line.split()[-1].split("@")[0] for line in out.stdout.splitlines()}
    # The sanitizers' runtime adds names of its own to every object.
    exported = {name for name in exported if not name.startswith(("__asan", "__ubsan", "__odr_asan", "__sanitizer"))}
    assert exported == declared


def test_one_header_is_installed(prefix: Path) -> None:
    headers = [p for p in prefix.rglob("*.h") if "kernel-env" not in p.parts and "site-packages" not in p.parts]
    assert headers == [prefix / "include/cellgate.h"]


def test_hardening(binaries: dict[str, Path]) -> None:
    for name, path in binaries.items():
        assert re.search(r"Type:\s+DYN", readelf("-h", path)), f"{name}: not position-independent"
        segments = readelf("-l", path)
        assert "GNU_RELRO" in segments, f"{name}: no RELRO"
        assert re.search(r"GNU_STACK.*\bRW\s", segments), f"{name}: executable stack"
        assert re.search(r"BIND_NOW|FLAGS.*NOW", readelf("-d", path)), f"{name}: lazy binding"
