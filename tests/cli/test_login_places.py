"""Where an MCP server may lead this machine: judged by the address that is connected to. In namespaces of our own, with
login_places_rig.py."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.no_sanitizer  # twenty logins; those of test_mcp_login.py run the same code

RIG = Path(__file__).with_name("login_places_rig.py")
MCP, INTERN = "mcp.example.org", "intern.example.org"
# The server, what it names, the definition's "issuer"; how the refusal ends, or None.
CASES = [
    (MCP, "login.example.org", None, None),
    (MCP, "loop.example.org", None, "a loopback address"),
    (MCP, "mapped.example.org", None, "a loopback address"),
    (MCP, "own.example.org", None, "a loopback address"),
    (MCP, "corp.example.org", None, "a private address"),
    (MCP, "meta.example.org", None, "a link-local address"),
    (MCP, "0x7f.1", None, "a loopback address"),
    (MCP, "[fd12::1]", None, "a private address"),
    (MCP, "x.localhost", None, "a loopback address"),
    (MCP, "corp.example.org", "corp.example.org", None),
    (MCP, "loop.example.org", "loop.example.org", None),
    (MCP, "loop.example.org", "corp.example.org", "a loopback address"),
    (INTERN, "login.example.org", None, None),
    (INTERN, "corp.example.org", None, None),
    (INTERN, "loop.example.org", None, "a loopback address"),
    (INTERN, "meta.example.org", None, "a link-local address"),
    ("loop.example.org", "corp.example.org", None, None),
    ("localhost", "loop.example.org", None, None),
]


@pytest.fixture(scope="module")
def rig(cellgate: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    unshare = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    if subprocess.run([*unshare, "ip", "link"], capture_output=True).returncode != 0:
        pytest.skip("user namespaces are forbidden here, or there is no `ip`")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*args: object) -> None:
        subprocess.run(["openssl", *map(str, args)], cwd=folder, check=True, capture_output=True)

    subject = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj"]
    openssl("req", "-x509", "-days", 10, *subject, "/CN=test", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "ext").write_text("subjectAltName=DNS:*.example.org,DNS:localhost\n")
    openssl("req", *subject, "/CN=x", "-keyout", "good.key", "-out", "good.csr")
    openssl("x509", "-req", "-in", "good.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", 5, "-extfile", "ext", "-out", "good.pem")  # fmt: skip
    argv = [*unshare, sys.executable, str(RIG), str(cellgate), str(folder), str(tmp_path_factory.mktemp("rig"))]
    asked = json.dumps([case[:3] for case in CASES])
    done = subprocess.run(argv, input=asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("n", range(len(CASES)), ids=lambda n: f"{CASES[n][0]}-{CASES[n][1]}-{CASES[n][2]}")
def test_place_of_the_authorization_server(rig: dict[str, Any], n: int) -> None:
    server, names, _, refused = CASES[n]
    got = rig["logins"][n]
    asked = [path for host, _, path in got["seen"] if host == names and path != "/mcp"]
    assert any(host == server and path == "/mcp" for host, _, path in got["seen"])
    if refused is None:
        assert f"https://{names}:" in got["out"] and "/authorization?" in got["out"], got
        assert "/registration" in asked
    else:
        assert "Sign in" not in got["out"]
        assert refused in got["err"] and "cannot name" in got["err"], got["err"]
        assert asked == []


def test_page_at_an_address_of_this_machine(rig: dict[str, Any]) -> None:
    """However the machine's own address is written: the page is for the browser, and nothing is shown."""
    assert len(rig["pages"]) == 3
    for got in rig["pages"]:
        assert "Sign in" not in got["out"], got
        assert "a loopback address, which a server at a public address cannot name" in got["err"]


def test_redirect_of_a_name_that_leads_here(rig: dict[str, Any]) -> None:
    """The name has two addresses, and the one outside refuses once it has redirected the message."""
    assert rig["redirect"]["arrived"] == []
    assert "a loopback address, which a server at a public address cannot name" in rig["redirect"]["err"]
