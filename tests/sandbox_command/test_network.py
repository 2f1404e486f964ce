"""The way out: by name through the proxy, and no other way."""

import pytest

from .conftest import Box


def get(url: str, proxies: str = "None") -> str:
    """A script that fetches without NO_PROXY's exceptions."""
    return (
        "import os, urllib.request as u, urllib.error as ue\n"
        "os.environ.pop('NO_PROXY', None); os.environ.pop('no_proxy', None)\n"
        f"o = u.build_opener(u.ProxyHandler({proxies}))\n"
        f"try: r = o.open('{url}', timeout=20); print(r.status, r.read().decode())\n"
        "except ue.HTTPError as e: print(e.code, e.read().decode())\n"
    )


def fetch(box: Box, url: str, allowed: list[str], proxies: str = "None", **more: object) -> str:
    settings = Box.settings(net={"allowedDomains": allowed}, **more)
    p = box.run("/usr/bin/python3", "-c", get(url, proxies), settings=settings)
    return p.stdout + p.stderr


def test_allowed_and_denied(box: Box, port: int) -> None:
    url = f"http://127.0.0.1:{port}/"
    assert fetch(box, url, ["127.0.0.1"]).startswith("200 hello from outside")
    assert fetch(box, url, [f"127.0.0.1:{port}"]).startswith("200")
    for allowed in ([], ["127.0.0.1:1"], ["example.com"]):
        answer = fetch(box, url, allowed)
        assert answer.startswith("403")
        assert "Connection blocked by network allowlist" in answer


def test_no_way_past_the_proxy(box: Box, port: int) -> None:
    assert "refused" in fetch(box, f"http://127.0.0.1:{port}/", ["127.0.0.1"], proxies="{}")
    settings = Box.settings(net={"allowedDomains": ["127.0.0.1"]})
    connect = "import socket; s = socket.socket(); s.settimeout(5); s.connect(('192.0.2.1', 80))"
    assert box.run("/usr/bin/python3", "-c", connect, settings=settings).returncode != 0
    assert box.run("getent", "hosts", "example.com", settings=settings).returncode != 0


def test_own_loopback(box: Box) -> None:
    script = (
        "import socket\n"
        "for a in ('127.0.0.1', '::1'):\n"
        "    f = socket.AF_INET6 if ':' in a else socket.AF_INET\n"
        "    l = socket.create_server((a, 0), family=f)\n"
        "    socket.create_connection(l.getsockname()[:2]).close()\n"
    )
    p = box.run("/usr/bin/python3", "-c", script, settings=Box.settings())
    assert p.returncode == 0, p.stderr


def test_the_proxys_port_cannot_be_taken(box: Box) -> None:
    script = (
        "import socket\n"
        "for a in ('127.0.0.1', '0.0.0.0'):\n"
        "    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "    try: s.bind((a, 3128)); s.listen(); print('TAKEN')\n"
        "    except OSError: print('kept')\n"
    )
    p = box.run("/usr/bin/python3", "-c", script, settings=Box.settings())
    assert p.stdout == "kept\nkept\n"


def test_network_off(box: Box) -> None:
    settings = Box.settings(net={"allowedDomains": ["127.0.0.1"]}, cellgate={"networkOff": True})
    p = box.run("env", settings=settings)
    assert "PROXY" not in p.stdout.upper()
    assert "HTTP_PROXY=http://localhost:3128" in box.run("env", settings=Box.settings()).stdout


def test_violation_log(box: Box, port: int) -> None:
    log = box.out / "denied.jsonl"
    fetch(box, f"http://127.0.0.1:{port}/", [], cellgate={"violationLog": str(log)})
    text = log.read_text()
    assert '"host":"127.0.0.1"' in text
    assert '"allowed":false' in text
    before = text
    fetch(box, f"http://127.0.0.1:{port}/", ["127.0.0.1"], cellgate={"violationLog": str(log)})
    assert log.read_text() == before
    for word in ("*", "python3"):
        ignored = {"cellgate": {"violationLog": str(log)}, "ignoreViolations": {word: ["127.0.0.1"]}}
        fetch(box, f"http://127.0.0.1:{port}/", [], **ignored)
        assert log.read_text() == before
    others = {"cellgate": {"violationLog": str(log)}, "ignoreViolations": {"make": ["127.0.0.1"], "*": ["10.0.0.1"]}}
    fetch(box, f"http://127.0.0.1:{port}/", [], **others)
    assert log.read_text() != before


@pytest.mark.parametrize(("allowed", "ok"), [(True, True), (False, False)])
def test_unix_sockets(box: Box, allowed: bool, ok: bool) -> None:
    script = "import socket; socket.socket(socket.AF_UNIX)"
    settings = Box.settings(net={"allowAllUnixSockets": allowed})
    assert (box.run("/usr/bin/python3", "-c", script, settings=settings).returncode == 0) == ok


SEND = """
import os, sys, urllib.request as u
os.environ.pop('NO_PROXY', None); os.environ.pop('no_proxy', None)
fields = {"X-Var": os.environ["TOKEN"], "X-File": open("token").read().strip()}
for url in sys.argv[1:]:
    u.urlopen(u.Request(url, headers=fields), timeout=20).read()
print(fields)
"""


def test_masked_credentials_are_put_back(box: Box, echo: tuple[int, list[dict[str, str]]]) -> None:
    """For the hosts that may have them, and nowhere that anybody inside sees it."""
    port, seen = echo
    log = box.out / "log"
    box.file("token", "TOPSECRET-of-the-file\n")
    creds = {
        "envVars": [{"name": "TOKEN", "mode": "mask"}],
        "files": [{"path": "token", "mode": "mask", "injectHosts": ["localhost"]}],
        "allowPlaintextInject": True,
    }
    p = box.run(
        "/usr/bin/python3",
        "-c",
        SEND,
        f"http://127.0.0.1:{port}/",
        f"http://localhost:{port}/",
        settings=Box.settings(
            net={"allowedDomains": ["127.0.0.1", "localhost"]}, credentials=creds, cellgate={"violationLog": str(log)}
        ),
        env={"TOKEN": "TOPSECRET-of-the-variable"},
    )
    assert p.returncode == 0, p.stderr
    assert "TOPSECRET" not in p.stdout + p.stderr + log.read_text()
    assert [f["X-Var"] for f in seen] == ["TOPSECRET-of-the-variable"] * 2
    assert seen[0]["X-File"].startswith("fake_value_")
    assert seen[1]["X-File"] == "TOPSECRET-of-the-file"
