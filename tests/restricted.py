"""A system whose AppArmor restricts user namespaces, as programs see it: restricted.run(ARGV) shows them such a /proc/sys.

Needs root, for mounts. The restriction itself is not there; tests/sandbox_command/no_users.py forbids user namespaces.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# A second /proc: one that is covered in part may not be mounted anew in a user namespace.
SCRIPT = """
set -e
mount -t tmpfs -o mode=755 tmpfs "$1"
mkdir "$1/proc" "$1/kernel"
for f in /proc/sys/kernel/*; do
        if [ -f "$f" ]; then cat "$f" >"$1/kernel/${f##*/}" 2>/dev/null || true; else mkdir "$1/kernel/${f##*/}"; fi
done
echo 1 >"$1/kernel/apparmor_restrict_unprivileged_userns"
mount -t proc proc "$1/proc"
mount --bind "$1/kernel" /proc/sys/kernel
shift
while [ "$1" != -- ]; do
        mount --bind "$1" "$2"
        shift 2
done
shift
exec "$@"
"""
NOT_ROOT = "needs root: mounts over /proc/sys"


def run(
    argv: Sequence[str | Path], scratch: Path, over: Mapping[Path, Path] | None = None, **options: object
) -> subprocess.CompletedProcess[str]:
    """Runs ARGV there. SCRATCH is an empty folder; OVER maps files to those that are shown in their place."""
    assert os.geteuid() == 0
    binds = [str(path) for target, source in (over or {}).items() for path in (source, target)]
    full = ["unshare", "-m", "--propagation", "private", "sh", "-c", SCRIPT, "sh", str(scratch), *binds, "--"]
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*full, *map(str, argv)], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **options
    )
