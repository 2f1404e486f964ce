"""`cellgate jupyter run --policy`: rules decide, ask the person at the notebook, and keep a no; `--config`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .test_approvals import answer, ask

CODE = "from mcptools.fs import read_file; print(read_file.run(path={!r}))"


def test_policy(start: Any, server: Any, tmp_path_factory: Any) -> None:
    file: Path = tmp_path_factory.mktemp("policy") / "policy.json"
    rules = [
        {"decision": "deny", "server": "fs", "arguments": {"/path": {"within": "/etc"}}, "text": "Not there."},
        {"decision": "allow", "server": "fs", "arguments": {"/path": {"within": "/srv"}}, "front": ["jupyter"]},
    ]
    file.write_text(json.dumps({"rules": rules}))
    client = start("--mcp", server.mcp, "--policy", file).client()
    assert client.run(CODE.format("/srv/a")).text() == "read_file done\n"
    refused = client.run(CODE.format("/srv/../etc/a")).content
    assert "refused by rule 1 of policy.json: Not there." in refused["evalue"]
    request, question = ask(client, CODE.format("/x"))
    answer(client, question, "n")
    client.finish(request)
    request = client.start(CODE.format("/x"), allow_stdin=True)
    assert "refused by an earlier answer of the user" in client.finish(request).content["evalue"]
    client.nothing("stdin", 0.1)
    assert server.ran() == ["read_file"]


@pytest.mark.parametrize("option", ["policy", "config"])
def test_a_file_in_the_workspace_stops_the_start(start: Any, tmp_path: Path, option: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/p.json").write_text("{}")
    kernel = start(f"--{option}=p.json")
    assert kernel.process.wait(60) == 2
    kernel.errors.seek(0)
    assert f"--{option} p.json is in the workspace" in kernel.errors.read().decode()


def test_a_configuration(start: Any, tmp_path_factory: Any) -> None:
    file: Path = tmp_path_factory.mktemp("config") / "c.json"
    file.write_text(json.dumps({"env": {"PLACE": "c.json"}}))
    kernel = start("--debug", f"--config={file}")  # the first one is ipykernel's
    assert kernel.client().run("import os; print(os.environ['PLACE'])").text() == "c.json\n"
    kernel.errors.seek(0)
    assert "--config" not in kernel.errors.read().decode()  # it is not among the ignored ones
