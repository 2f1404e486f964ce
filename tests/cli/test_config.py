"""--config FILE: the values of options from a file and from variables, which level wins, and which files are refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import web

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SANDBOX = web.settings()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outside of the workspace."""
    return tmp_path_factory.mktemp("config")


@pytest.fixture
def config(folder: Path) -> Callable[..., Path]:
    """config({...}) or config("text"): the file config.json."""

    def make(value: dict[str, Any] | str) -> Path:
        path = folder / "config.json"
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    return make


def shown(run: Run, file: Path, *words: str) -> dict[str, Any]:
    r = run("config", "--config", file, "--origin", *words)
    assert r.returncode == 0, r.stderr
    found: dict[str, Any] = json.loads(r.stdout)
    return found


# ---------------------------------------------------------------- what overrides what


def test_the_strongest_level_wins(run_cellgate: Run, config, folder: Path, monkeypatch) -> None:
    file = config({"exec": "deny", "tier": "full", "approve": ["ask", "a.b"], "limits": {"cores": 3, "memoryMb": 300}})
    (folder / ".env").write_text("# a comment\nAPI_KEY=x\nCELLGATE_EXEC='ask'\nCELLGATE_TIER=auto\n")
    monkeypatch.setenv("CELLGATE_TIER", "landlock")
    monkeypatch.setenv("CELLGATE_LIMITS_MEMORY_MB", "400")
    found = shown(run_cellgate, file, "--approve", "none", "--limit", "processes=9")
    value = {k: found[k]["value"] for k in ("exec", "tier", "approve")}
    assert value == {"exec": "ask", "tier": "landlock", "approve": "none"}
    assert [found[k]["from"] for k in ("exec", "tier", "approve")] == [
        str(folder / ".env"),
        "the environment",
        "the command line",
    ]
    # Limits override one another one by one.
    assert {k: v["value"] for k, v in found["limits"].items()} == {"cores": 3, "memoryMb": 400, "processes": 9}


def test_no_level_takes_back_a_policy(run_cellgate: Run, config, folder: Path) -> None:
    for name, decision in [("allow.json", "allow"), ("deny.json", "deny")]:
        (folder / name).write_text(json.dumps({"default": decision}))
    file = config({"policy": ["deny.json"]})
    found = shown(run_cellgate, file, "--policy", str(folder / "allow.json"))
    assert [p["value"] for p in found["policy"]] == [str(folder / "allow.json"), str(folder / "deny.json")]


def test_variables_alone_change_nothing(run_cellgate: Run, monkeypatch) -> None:
    monkeypatch.setenv("CELLGATE_EXEC", "nonsense")
    assert run_cellgate("run", "-c", "1 + 1").stdout == "2\n"


def test_a_flag_can_be_taken_back(run_cellgate: Run, config, monkeypatch) -> None:
    file = config({"artifacts": True})
    code = "open('made', 'w').close()"
    assert "made" in run_cellgate("run", "--config", file, "-c", code).stderr
    monkeypatch.setenv("CELLGATE_ARTIFACTS", "false")
    code = code.replace("made", "again")
    assert "made" not in run_cellgate("run", "--config", file, "-c", code).stderr


# ---------------------------------------------------------------- each front


def test_run_uses_every_kind_of_value(run_cellgate: Run, config, folder: Path, server, tmp_path: Path) -> None:
    servers = json.loads(server.mcp.read_text())
    (folder / "policy.json").write_text(
        json.dumps({"rules": [{"decision": "deny", "server": "fs", "tool": "write_file", "text": "By policy."}]})
    )
    (folder / "here").mkdir()
    file = config(
        {
            "$schema": "schema.json",
            "workspace": "here",
            "approve": ["none", "fs.*"],
            "policy": "policy.json",
            "env": {"PLACE": "config", "COUNT": 3},
            "limits": {"openFiles": 77},
            "sandbox": SANDBOX,
            "http": "127.0.0.1:1",  # of mcp serve
            "linger": 5,  # of jupyter
            **servers,
        }
    )
    code = """
import os, resource
from mcptools.fs import read_file, write_file
print(os.getcwd(), os.environ['PLACE'], os.environ['COUNT'], resource.getrlimit(resource.RLIMIT_NOFILE)[0])
print(read_file.run(path='/a'))
try: write_file.run(path='/a')
except Exception as e: print(e)
try: print(open(FILE).read())
except OSError as e: print(type(e).__name__)
"""
    code = f"FILE = {str(file)!r}" + code
    r = run_cellgate("run", "--config", file, "--env", "COUNT=4", "-c", code)
    first, read, write, hidden = r.stdout.splitlines()
    assert first == f"{folder / 'here'} config 4 77"
    assert read == "read_file done" and "By policy." in write
    assert "Error" in hidden  # the file has definitions with secrets
    assert server.ran() == ["read_file"]


def test_mcp_serve_uses_it(run_cellgate: Run, config, folder: Path) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": begin},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request,
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    r = run_cellgate("mcp", "serve", "--config", config({"toolsets": "core", "stay": True}), input=text)
    tools = [t["name"] for t in json.loads(r.stdout.splitlines()[-1])["result"]["tools"]]
    assert "execute_ipython_cell" in tools and "cell_status" not in tools


def test_other_programs_get_the_name_of_the_file(run_cellgate: Run, config, folder: Path) -> None:
    file = config({"env": {"TOKEN": "secret"}, "exec": "ask", "workspace": "/somewhere"})
    r = run_cellgate("jupyter", "install", "--prefix", folder / "p", "--config", file)
    assert r.returncode == 0, r.stderr
    spec = next(folder.rglob("kernel.json")).read_text()
    assert f"--config={file}" in json.loads(spec)["argv"] and "secret" not in spec and "--exec" not in spec
    r = run_cellgate("mcp", "serve", "--config", file, "--print-config", "claude")
    assert f"--config={file}" in r.stdout and "secret" not in r.stdout + r.stderr


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"timout": 3}, '"timout": unknown option --timout: did you mean --timeout?'),
        ({"limit": {"memoryMb": 5}}, '"limit" needs a text or a number'),
        ({"limits": {"memory": 5}}, "config.json: --limit memory=5: there is no such limit"),
        ({"limits": {"memoryMb": "x"}}, "config.json: --limit needs NAME=NUMBER"),
        ({"limits": 5}, '"limits" needs an object'),
        ({"env": {"A": {}}}, '"A" of "env" needs a text or a number'),
        ({"exec": ["ask", "deny"]}, '"exec" needs one value, not a list'),
        ({"exec": None}, '"exec" needs a text or a number'),
        ({"exec": {"mode": "ask"}}, '"exec" needs a text or a number'),
        ({"exec": "perhaps"}, "--exec must be allow, ask or deny"),
        ({"artifacts": "yes"}, '"artifacts" needs true or false'),
        ({"code": "1"}, '"code" is for the command line only'),
        ({"config": "other.json"}, '"config" is for the command line only'),
        ({"sandbox": {"netwrok": {}}}, "netwrok"),
        ('{"exec": "ask", "exec": "allow"}', "duplicate"),
        ("[]", "config.json"),
        ("{", "config.json"),
    ],
)
def test_wrong_files(run_cellgate: Run, config, value: dict[str, Any] | str, words: str) -> None:
    r = run_cellgate("run", "--config", config(value), "-c", "print('ran')")
    assert r.returncode == 2 and words in r.stderr and "ran" not in r.stdout


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CELLGATE_EXCE", "ask", "CELLGATE_EXCE"),
        ("CELLGATE_LIMITS_MEMORY", "5", "CELLGATE_LIMITS_MEMORY names no limit"),
        ("CELLGATE_ARTIFACTS", "yes", 'CELLGATE_ARTIFACTS must be true or false, not "yes"'),
        ("CELLGATE_CODE", "1", "for the command line only"),
    ],
)
@pytest.mark.parametrize("dotenv", [False, True])
def test_wrong_variables(
    run_cellgate: Run, config, folder: Path, monkeypatch, name: str, value: str, words: str, dotenv: bool
) -> None:
    if dotenv:
        (folder / ".env").write_text(f"{name}={value}\n")
    else:
        monkeypatch.setenv(name, value)
    r = run_cellgate("run", "--config", config({}), "-c", "print('ran')")
    assert r.returncode == 2 and words in r.stderr and "ran" not in r.stdout
    assert str(folder / ".env" if dotenv else "the environment") in r.stderr


def test_the_option_itself(run_cellgate: Run, config, folder: Path) -> None:
    file = config({})
    assert "given once" in run_cellgate("run", "--config", file, "--config", file, "-c", "1").stderr
    assert "No such file" in run_cellgate("run", "--config", folder / "none", "-c", "1").stderr
    assert "which configuration?" in run_cellgate("config", "--origin").stderr


@pytest.mark.parametrize("how", ["workspace", "allowWrite", "hard link", "link in the workspace", ".env"])
def test_a_file_that_cells_can_write(run_cellgate: Run, config, folder: Path, tmp_path: Path, how: str) -> None:
    file = config({"sandbox": SANDBOX})
    if how == "workspace":
        file = file.rename(tmp_path / "config.json")
    elif how == "allowWrite":
        wide = {"sandbox": SANDBOX | {"filesystem": SANDBOX["filesystem"] | {"allowWrite": [".", str(folder)]}}}
        file = config(wide)
    elif how == "hard link":
        os.link(file, folder / "other")
    elif how == "link in the workspace":
        (tmp_path / "config.json").symlink_to(file)
        file = tmp_path / "config.json"
    else:
        (tmp_path / "written").write_text("CELLGATE_NO_SANDBOX=false\n")
        (folder / ".env").symlink_to(tmp_path / "written")
    r = run_cellgate("run", "--config", file, "-c", "print('ran')")
    assert r.returncode == 2 and "ran" not in r.stdout
    assert re.search("could write it|symbolic link|redirect", r.stderr), r.stderr


def test_connect_of_a_file_that_cells_can_write(run_cellgate: Run, config, tmp_path: Path, folder: Path) -> None:
    config({"connect": f"touch {folder}/ran; true"}).rename(tmp_path / "config.json")
    r = run_cellgate("run", "--config", tmp_path / "config.json", "-c", "1")
    assert r.returncode == 2 and "in the workspace" in r.stderr
    assert not (folder / "ran").exists()


def test_approvers_take_no_file(run_cellgate: Run, config) -> None:
    """They have no workspace, by which it could be checked."""
    r = run_cellgate("mcp", "serve", "--config", config({"toolsets": "approvals"}))
    assert r.returncode == 2 and "--toolsets approvals takes no --config" in r.stderr


# ---------------------------------------------------------------- cellgate config


def test_secrets_are_not_shown(run_cellgate: Run, config) -> None:
    file = config(
        {
            "env": {"TOKEN": "secret-1"},
            "webhook": "https://example.org/hooks/secret-2",
            "audit-head": "https://ann:secret-4@example.org",
            "sandbox": {**SANDBOX, "network": {**SANDBOX["network"], "parentProxy": {"http": "http://ann:secret-5@proxy.example:8080"}}},
            "mcpServers": {"a": {"command": "x", "env": {"K": "secret-3"}}},
            "approve": ["ask"],
        }
    )
    for words in ([], ["--origin"]):
        r = run_cellgate("config", "--config", file, *words)
        assert r.returncode == 0 and "secret-" not in r.stdout + r.stderr
        assert "https://example.org/***" in r.stdout and '"TOKEN"' in r.stdout


def test_schema(run_cellgate: Run, repo: Path) -> None:
    schema = json.loads(run_cellgate("config", "schema").stdout)
    checker = jsonschema.Draft202012Validator(schema)
    text = (repo / "docs/configuration.md").read_text()
    example = json.loads(text.split("```json\n", 1)[1].split("```", 1)[0])
    checker.validate(example)
    for wrong in ({"timout": 1}, {"artifacts": "yes"}, {"limits": {"memoryMb": "x"}}, {"code": "1"}):
        assert not checker.is_valid(wrong), wrong
