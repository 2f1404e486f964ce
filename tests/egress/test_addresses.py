"""Which addresses a name may lead to. In namespaces of our own, with real DNS: netns_rig.py asks, these tests judge."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from egress.harness import Json

RIG = Path(__file__).with_name("netns_rig.py")


@pytest.fixture(scope="module")
def rig(prefix: Path, slowness: float) -> Json:
    unshare = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    if subprocess.run([*unshare, "ip", "link"], capture_output=True).returncode != 0:
        pytest.skip("user namespaces are forbidden here, or there is no `ip`")
    argv = [*unshare, sys.executable, str(RIG), str(prefix / "libexec/cellgate/cellgate-egress"), str(slowness)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=50 * slowness)
    assert done.returncode == 0, done.stderr
    answer: Json = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("public.example.com", "::ffff:198.51.100.7"),
        ("six.example.com", "2001:db8:7::7"),
        ("in-hosts.example.com", "::ffff:198.51.100.7"),
        ("localhost", "::ffff:127.0.0.1"),
        ("some.example.com", "::ffff:198.51.100.7"),
        ("dead-first.example.com", "::ffff:198.51.100.7"),
        ("listed literal", "::ffff:127.0.0.1"),
        ("private allowed", "::ffff:10.1.2.3"),
        ("asked address", "::ffff:169.254.169.254"),
    ],
)
def test_reached(rig: Json, name: str, address: str) -> None:
    """The name leads where it should, and only to what was vetted."""
    assert rig[name]["status"] == 200, rig[name]
    assert f"AT {address}\n" in rig[name]["text"]
    assert rig[name]["event"]["address"] == address.removeprefix("::ffff:")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("loop.example.com", "a loopback address"),
        ("loop6.example.com", "a loopback address"),
        ("mapped.example.com", "a loopback address"),
        ("nat64.example.com", "a loopback address"),
        ("sixtofour.example.com", "a loopback address"),
        ("zero.example.com", "an unspecified address"),
        ("meta.example.com", "a link-local address"),
        ("meta6.example.com", "a cloud metadata address"),
        ("ten.example.com", "a private address"),
        ("ula.example.com", "a private address"),
        ("multi.example.com", "a multicast address"),
        ("own.example.com", "one of this host's addresses"),
        ("all-bad.example.com", "a loopback address / a private address"),
        ("hosts-private.example.com", "a private address"),
        ("literal of another port", "a loopback address"),
        ("denied literal", "a deny-listed address"),
        ("denied range", "a listed address"),
        ("private allowed, loopback not", "a loopback address"),
    ],
)
def test_refused(rig: Json, name: str, reason: str) -> None:
    got = rig[name]
    host = got["event"]["host"]
    assert got["status"] == 403, got
    assert "X-Proxy-Error: blocked-by-sandbox-runtime\r\n" in got["text"]
    assert got["text"].endswith(f"\r\n\r\nConnection to {host} blocked: resolved to {reason}\n")
    assert got["event"]["line"] == f"deny network-outbound {host}:{rig['port']} (resolved to {reason})"
    # Where a name leads to is not for the sandbox to learn.
    assert not any(a in got["text"] for a in ("127.0.0.1", "10.", "169.254", "198.51"))


def test_rebinding(rig: Json) -> None:
    """Each connection's name is looked up once, and that answer is the one that is judged and used."""
    assert rig["rebind 1"]["status"] == 200
    assert "AT ::ffff:198.51.100.7\n" in rig["rebind 1"]["text"]
    assert rig["rebind 2"]["status"] == 403


def test_no_such_name(rig: Json) -> None:
    assert rig["nowhere.example.com"]["status"] == 502
    assert "could not be resolved" in rig["nowhere.example.com"]["text"]


def test_a_name_server_that_does_not_answer(rig: Json) -> None:
    assert rig["slow"]["status"] == 502
    assert "not resolved in time" in rig["slow"]["text"] or "could not be resolved" in rig["slow"]["text"]


def test_slow_names_of_a_sandbox_do_not_delay_others(rig: Json, slowness: float) -> None:
    """Their 40 lookups take a second each."""
    assert rig["beside slow ones"]["status"] == 200
    assert rig["beside slow ones"]["seconds"] < 2 * slowness


def test_a_new_policy_holds_for_names_that_are_looked_up(rig: Json) -> None:
    assert rig["late.example.com"]["status"] == 200
    got = rig["denied while it was looked up"]
    assert (got["status"], got["event"]["why"]) == (403, "host is not on the allow list")
