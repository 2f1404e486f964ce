"""Documents of ipybox and srt: each of their blocks does here what it does there, with only the import line or the command's name
changed. Names of the internet lead to a server of the tests (internet.py); npx, npm and jest are programs of the tests."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from readmes import blocks_ipybox as ipybox
from rounds import peer, with_peers

HERE = Path(__file__).parent
Run = Callable[..., "subprocess.CompletedProcess[str]"]
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]


def blocks(name: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", (HERE / name).read_text(), re.M | re.S)


def commands(block: str) -> list[str]:
    """The lines of a block of the shell that start srt."""
    return [line.removeprefix("$ ") for line in block.splitlines() if re.match(r"(\$ )?srt ", line)]


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class Place:
    """A folder as a reader of the documents has it, and programs in PATH."""

    def __init__(self, base: Path, prefix: Path, deps: Path) -> None:
        self.home, self.work, self.bin, self.net = (base / n for n in ("home", "work", "bin", "net"))
        for folder in (self.home, self.work, self.bin, self.net, self.home / ".ssh", self.work / "examples"):
            folder.mkdir()
        (self.home / ".ssh/id_rsa").write_text("secret\n")
        (self.work / "README.md").write_text("# Anthropic Sandb...\n")
        (self.work / ".env").write_text("SECRET=1\n")
        (self.work / "my_script.py").write_text("print('mine')\n")
        self.servers = deps / "servers-env"
        self.packages = next(self.servers.glob("lib/python3*/site-packages"))
        node = shutil.which("node") or "node"
        (self.bin / "srt").symlink_to(prefix / "bin/cellgate")
        write_program(self.bin / "python", f'exec {self.servers}/bin/python "$@"')
        # Nothing is downloaded: `npx -y PACKAGE ARG...` starts what the tests have.
        packages = deps / "npm/node_modules"
        write_program(self.bin / "npx", f'shift; p=$1; shift; exec {node} {packages}/"$p"/dist/index.js "$@"')
        write_program(self.bin / "npm", "echo up to date")
        write_program(self.bin / "jest", 'echo "jest $*"')
        ca = self.net / "ca.pem"
        self.env = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(base / "state"),
            "PYTHONPATH": str(prefix / "lib/cellgate/package"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CELLGATE": str(prefix / "bin/cellgate"),
            "CELLGATE_PRIVATE": "1",
            "SSL_CERT_FILE": str(ca),
            "CURL_CA_BUNDLE": str(ca),
        }

    def run(self, *argv: object, input: str = "") -> subprocess.CompletedProcess[str]:
        bundles = [
            str(p) for p in (self.packages / "certifi/cacert.pem", self.work / "certifi/cacert.pem") if p.exists()
        ]
        words = [*UNSHARE, sys.executable, str(HERE / "internet.py"), str(self.net), ":".join(bundles), *map(str, argv)]
        return subprocess.run(words, input=input, cwd=self.work, env=self.env, capture_output=True, text=True)

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        return self.run("sh", "-c", line)

    def settings(self, **more: Any) -> None:
        """What the first examples of srt's documents mean."""
        network = {"allowedDomains": ["anthropic.com"], "deniedDomains": []}
        filesystem = {"denyRead": ["~/.ssh"], "allowWrite": ["."], "denyWrite": []}
        (self.home / ".srt-settings.json").write_text(
            json.dumps({"network": network, "filesystem": filesystem, **more})
        )


@pytest.fixture
def place(tmp_path: Path, prefix: Path, npm_dir: Path) -> Iterator[Place]:
    if subprocess.run([*UNSHARE, "ip", "link"], capture_output=True).returncode != 0:
        pytest.skip("user namespaces are forbidden here, or there is no `ip`")
    yield Place(tmp_path, prefix, npm_dir.parent)


# ---- ipybox


def run_ipybox(place: Place, *written: str) -> dict[str, Any]:
    imports = ipybox.IMPORTS.replace("from ipybox", "from cellgate.ipybox")
    for package in ("requests", "urllib3", "idna", "certifi", "charset_normalizer"):  # ipybox brings requests
        shutil.copytree(place.packages / package, place.work / package)
    for name, text in (
        ("kernel", ipybox.KERNEL_JSON),
        ("filesystem-mcp", ipybox.FILESYSTEM_JSON),
        ("fetch-mcp", ipybox.FETCH_JSON),
    ):
        (place.work / f"examples/sandbox-{name}.json").write_text(text)
    p = place.run(
        sys.executable, HERE / "run_blocks.py", input=json.dumps([ipybox.STANDARD_LIBRARY, imports, *written])
    )
    assert p.returncode == 0, p.stderr
    result: dict[str, Any] = json.loads(p.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize(
    "written",
    [
        [ipybox.DEFAULT_SANDBOX],
        [ipybox.CUSTOM_SANDBOX],
        pytest.param([ipybox.FETCH_PARAMS, ipybox.FETCH_USAGE], marks=peer),
    ],
    ids=["default sandbox", "custom sandbox", "fetch server"],
)
def test_ipybox(place: Place, written: list[str]) -> None:
    assert run_ipybox(place, *written)["error"] == []


@peer
def test_ipybox_filesystem_server(place: Place) -> None:
    """The page expects macOS's words for the refusal."""
    usage = ipybox.FILESYSTEM_USAGE.replace("operation not permitted", "EACCES: permission denied")
    assert run_ipybox(place, ipybox.FILESYSTEM_PARAMS, usage)["error"] == []


def test_ipybox_default_configuration(place: Place) -> None:
    (place.work / "sandbox.json").write_text(ipybox.DEFAULT_JSON)
    p = place.shell("srt --settings sandbox.json 'echo x > f; cat f; cat .env'")
    assert p.stdout == "x\n" and ".env: Permission denied" in p.stderr


# ---- srt's command


@pytest.mark.parametrize("document", with_peers(["srt.md", "srt_python.md"], "srt.md"))
def test_srt_basic_usage(place: Place, document: str) -> None:
    place.settings()
    allowed, blocked, readme, key = (place.shell(c) for c in commands(blocks(document, "bash")[0]))
    assert allowed.returncode == 0 and "<html>" in allowed.stdout
    assert blocked.stdout.startswith("Connection blocked by network allowlist\n")
    assert (readme.returncode, readme.stdout) == (0, "# Anthropic Sandb...\n")
    assert key.returncode == 1 and key.stdout == "" and "id_rsa: " in key.stderr


@pytest.mark.parametrize("document", with_peers(["srt.md", "srt_python.md"], "srt.md"))
def test_srt_command_line(place: Place, document: str) -> None:
    place.settings(network={"allowedDomains": ["example.com"], "deniedDomains": []})
    (place.work / "script.py").write_text("print('script')\n")
    settings = place.work / "srt-settings.json"
    shutil.copy(place.home / ".srt-settings.json", settings)
    hello, debug, other, *more = (
        place.shell(c.replace("/path/to/srt-settings.json", str(settings)))
        for c in commands(blocks(document, "bash")[1])
    )
    assert hello.stdout == "hello world\n"
    assert "Example Domain" in debug.stdout and "[SandboxDebug]" in debug.stderr
    assert other.stdout == ("script\n" if document == "srt_python.md" else "up to date\n"), other
    assert [p.stdout for p in more] == (["mine\n"] if document == "srt_python.md" else [])


def test_srt_tips_and_protected_files(place: Place) -> None:
    place.settings()
    (place.work / ".git/hooks").mkdir(parents=True)
    _, _, jest, protected = (commands(b) for b in blocks("srt.md", "bash"))
    assert place.shell(jest[0]).stdout == "jest --no-watchman\n"
    for command in protected:
        p = place.shell(command)
        assert p.returncode == 1 and re.search(r"\.bashrc: |pre-commit: ", p.stderr)
    assert not (place.work / ".bashrc").exists() and not (place.work / ".git/hooks/pre-commit").exists()


@pytest.mark.parametrize("document", with_peers(["srt.md", "srt_python.md"], "srt.md"))
def test_srt_configurations(place: Place, document: str) -> None:
    """Each is a settings file, and one for the library; what is a part of one is refused as srt refuses it."""
    (place.work / "config").mkdir()
    for text in blocks(document, "json"):
        given = json.loads(text)
        if "mcpServers" in given:
            continue
        (place.work / "s.json").write_text(text)
        p = place.shell("srt -s s.json 'echo ran'")
        if "network" not in given:
            assert p.returncode == 1 and "network: Required" in p.stderr
            continue
        assert (p.returncode, p.stdout) == (0, "ran\n"), p.stderr
        code = "import json, sys; from cellgate.srt.config.schemas import SandboxRuntimeConfig as C; C.from_json(json.load(sys.stdin))"
        p = place.run(sys.executable, "-c", code, input=text)
        assert p.returncode == 0, p.stderr


def test_srt_mcp_servers(place: Place) -> None:
    """The filesystem server with and without a sandbox, which keeps it from the denied folder."""
    without, sandboxed, settings, *_ = blocks("srt.md", "json")
    (place.home / ".srt-settings.json").write_text(settings)
    denied = place.home / "sensitive-folder"
    denied.mkdir()
    for text in (without, sandboxed):
        definition = json.loads(text)
        definition["mcpServers"]["filesystem"]["args"] += [str(place.work), str(denied)]  # folders that it may use
        (place.work / ".mcp.json").write_text(json.dumps(definition))
        results = []
        for folder in (place.work, denied):
            arguments = json.dumps({"path": str(folder / "test.txt"), "content": "x"})
            results.append(
                place.run(place.env["CELLGATE"], "mcp", "call", "--yes", "filesystem", "write_file", arguments)
            )
        assert results[0].returncode == 0, results[0].stderr
        if text is without:
            assert results[1].returncode == 0
            (denied / "test.txt").unlink()
    said = results[1].stdout + results[1].stderr
    assert results[1].returncode != 0 and re.search("EPERM|EROFS|EACCES", said) and "test.txt" in said, said
    assert not (denied / "test.txt").exists()


# ---- srt's libraries


@peer
def test_srt_for_node(place: Place, repo: Path, npm_dir: Path) -> None:
    """The first block ends with reset(), which takes the network from the command that has just been started."""
    node = next(npm_dir.parent.glob("test-npm/node_modules/node-linux-*/bin/node"), None)  # it runs TypeScript
    if node is None:
        pytest.skip("there is no node that runs TypeScript: run scripts/setup --test")
    usage, exports = (
        b.replace("@anthropic-ai/sandbox-runtime", str(repo / "npm/index.js")) for b in blocks("srt.md", "typescript")
    )
    (place.work / "usage.mts").write_text(usage)
    p = place.run(node, "usage.mts")
    assert p.returncode == 0 and re.search(r"^Command exited with code \d+$", p.stdout, re.M), p.stderr
    (place.work / "usage.mts").write_text(re.sub(r"(?m)^await SandboxManager.reset\(\)$", "", usage))
    p = place.run(node, "usage.mts")
    assert "Example Domain" in p.stdout and "Command exited with code 0" in p.stdout, p.stderr
    (place.work / "exports.mts").write_text(exports)
    p = place.run(node, "-e", "import('./exports.mts').then(m => console.log(Object.keys(m).join()))")
    assert p.stdout == "SandboxManager,SandboxViolationStore\n", p.stderr
    declared = set(re.findall(r"export (?:declare )?(?:type|interface) (\w+)", (repo / "npm/index.d.ts").read_text()))
    (types,) = re.findall(r"export type \{(.*?)\}", exports, re.S)
    assert {t.strip() for t in types.split(",") if t.strip()} <= declared


def test_srt_for_python(place: Place) -> None:
    scripts = [b.replace("from sandbox_runtime", "from cellgate.srt") for b in blocks("srt_python.md", "python")]
    (place.work / "script.py").write_text("")

    def run(n: int) -> subprocess.CompletedProcess[str]:
        (place.work / f"block_{n}.py").write_text(scripts[n])
        return place.run(sys.executable, f"block_{n}.py")

    assert len(scripts) == 4
    first, basic, advanced, agent = map(run, range(4))
    assert first.returncode == 0 and "Example Domain" in first.stdout, first.stderr
    assert (basic.returncode, basic.stdout) == (0, ""), basic.stderr
    assert (advanced.returncode, advanced.stdout) == (0, "mine\n\n"), advanced.stderr
    # This block imports no subprocess, there as here.
    assert agent.returncode == 1 and agent.stderr.splitlines()[-1].startswith(
        "NameError: name 'subprocess' is not defined"
    )
    scripts[3] = "import subprocess\n" + scripts[3]
    agent = run(3)
    assert (agent.returncode, agent.stdout) == (0, "Hello from sandbox!\n\n"), agent.stderr
