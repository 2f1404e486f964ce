"""A plugin of pytest for scripts/suites.py: writes the names of the tests that reached cellgate's kernel to a file.

A test has reached it if it started one (the kernelspec's program adds a line to CELLGATE_STARTS), or sent a request
while one ran. The file is CELLGATE_STARTS with the suffix .tests. Suites move Jupyter's folders, where jupyter_client
falls back to ipykernel's kernelspec, or install that one: CELLGATE_SPEC is used in its place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import session
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

STARTS = Path(os.environ["CELLGATE_STARTS"])
SPEC = json.loads(Path(os.environ["CELLGATE_SPEC"]).read_text())
requests = 0
send = session.Session.send
find = KernelSpecManager._get_kernel_spec_by_name


def count(self: session.Session, stream: Any, msg_or_type: Any, *args: Any, **kwargs: Any) -> Any:
    global requests
    kind = msg_or_type["header"]["msg_type"] if isinstance(msg_or_type, dict) else msg_or_type
    requests += isinstance(kind, str) and kind.endswith("_request")
    return send(self, stream, msg_or_type, *args, **kwargs)


def replace(self: KernelSpecManager, kernel_name: str, resource_dir: str) -> KernelSpec:
    found = find(self, kernel_name, resource_dir)
    ours = KernelSpec(resource_dir=resource_dir, **SPEC)
    return ours if kernel_name == "python3" and "ipykernel_launcher" in found.argv else found


session.Session.send = count
KernelSpecManager._get_kernel_spec_by_name = replace


def runs() -> bool:
    """Whether a kernel of cellgate is a child of this process."""
    program = SPEC["argv"][1].encode()
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            try:
                if program in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    return True
            except OSError:  # ended meanwhile
                continue
    return False


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before, size, ran = requests, STARTS.stat().st_size, runs()
    yield
    if STARTS.stat().st_size > size or (requests > before and (ran or runs())):
        with STARTS.with_suffix(".tests").open("a") as file:
            file.write(f"{item.nodeid}\n")
