"""`cellgate jupyter install`: writes a kernelspec, by which Jupyter finds and starts this kernel.

`cellgate` (src/cli/jupyter/install.c) has checked its command line and starts, as the user and outside of any sandbox,

    python -I -S -X utf8 install_kernelspec.py OPTIONS FOLDER KERNEL_ENV LOGOS PROGRAM [WORD...]

with OPTIONS as a JSON object. The kernelspec starts PROGRAM with the WORDs; it never runs in a kernel.
"""

from __future__ import annotations

import glob
import json
import os
import re
import stat
import sys
from contextlib import suppress
from typing import Any

LOGO_NAMES = ("logo-32x32.png", "logo-64x64.png", "logo-svg.svg")
MAX_SPEC = 1 << 20
# By the option --language: name, display name and language.
KERNELS = {
    "shell": ("cellgate-shell", "Bash (cellgate)", "bash"),
    "node": ("cellgate-node", "JavaScript (cellgate)", "javascript"),
}
PYTHON = ("cellgate", "Python (cellgate)", "python")
# The name of the entry point in pyproject.toml.
PROVISIONER = {"provisioner_name": "cellgate-provisioner"}
PROVISIONER_FILES = ("site-packages", "dist-packages")


def matches(folder: str, pattern: str) -> bool:
    return bool(glob.glob(glob.escape(folder) + pattern))


def make_folders(folder: str) -> None:
    home = os.environ.get("HOME", "").rstrip("/")
    if home and f"{folder}/".startswith(f"{home}/") and not os.path.exists(home):  # on purpose, as of "nobody"
        raise ValueError(
            f"cannot make the folder {folder}: the home folder (HOME) is missing and cellgate makes none; set HOME to"
            " one that exists"
        )
    for end in re.finditer("(?<=.)/|$", folder):
        part = folder[: end.start()]
        try:
            os.mkdir(part, 0o755)
        except FileExistsError:
            pass
        except OSError as e:
            raise ValueError(f"cannot make the folder {part}: {e.strerror}") from None


def is_ours(fd: int) -> bool:
    """It starts PROGRAM jupyter run, with any path of the program."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return False
    text = os.read(fd, MAX_SPEC)
    try:
        program, command, what = json.loads(text)["argv"][:3]
        return bool("cellgate" in program and (command, what) == ("jupyter", "run"))
    except (ValueError, TypeError, LookupError, RecursionError):
        return False


def check_folder(folder: int) -> None:
    """Only a kernelspec of ours is replaced: the folder may be a link, and "python3" the user's only kernel.

    Without one the folder must be empty, or have only files of an interrupted installation.
    """
    try:
        ours = is_ours(os.open("kernel.json", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder))
    except FileNotFoundError:
        ours = all(name.startswith(".") or name in LOGO_NAMES for name in os.listdir(folder))
    if not ours:
        raise ValueError("it has files of another kernel: choose another --name, or remove them first")


def write_file(folder: int, name: str, data: bytes) -> None:
    """Under a temporary name first, so that no partial file is visible; a FIFO of that name is not opened."""
    temporary = f".{name}.{os.getpid()}"
    try:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(temporary, flags, 0o644, dir_fd=folder), "wb") as file:
            file.write(data)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as e:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise ValueError(f"{name}: {e.strerror}") from None


def write_files(folder: str, logos: str, spec: bytes) -> None:
    files = {}
    for name in LOGO_NAMES:
        with suppress(OSError), open(f"{logos}/{name}", "rb") as file:  # a kernel works without its picture
            files[name] = file.read()
    what = "its folder"
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        what = "kernel.json"
        check_folder(fd)
        for name, data in (files | {what: spec}).items():
            write_file(fd, name, data)
    except OSError as e:
        raise ValueError(f"{folder}: {what}: {e.strerror}") from None
    except ValueError as e:
        raise ValueError(f"{folder}: {e}") from None


def install(options: dict[str, Any], folder: str, kernel_env: str, logos: str, argv: list[str]) -> str:
    environment = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    prefix = environment if options["where"] == "environment" else folder
    if not prefix:
        raise ValueError("--sys-prefix: no environment is active (VIRTUAL_ENV, CONDA_PREFIX); --prefix DIR names one")
    own = KERNELS.get(options["kernel"], PYTHON)
    if options["other"] is not None:  # display name and language of that kernel
        own = (f"cellgate-{options['kernel']}", f"{options['other'][0]} (cellgate)", options["other"][1])
    name, display_name, language = own
    name = name if options["name"] is None else options["name"]
    if not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9._-]*", name):
        raise ValueError(f'"{name}" is not a name for a kernel: use letters, digits and ._-')
    debugger = own is PYTHON and matches(kernel_env, "/lib/python3*/site-packages/debugpy")
    features = ["debugger"] * debugger + ["kernel subshells"] * options["subshells"]
    metadata = {"debugger": debugger, "supported_features": features, "supported_encryption": ["curve"]}
    # Jupyter refuses a kernelspec whose provisioner it does not have. The user's folder is that of all Jupyters of this
    # user; that of an environment is most likely its Jupyter's alone.
    has_package = options["where"] != "user" and any(
        matches(prefix, f"/lib/python3*/{packages}/cellgate/jupyter_provisioner.py") for packages in PROVISIONER_FILES
    )
    if options["provisioner"] == "always" or (options["provisioner"] == "auto" and has_package):
        metadata["kernel_provisioner"] = PROVISIONER
    spec = {
        "argv": argv,
        "display_name": display_name if options["display_name"] is None else options["display_name"],
        "language": language,
        "interrupt_mode": "message",
        "kernel_protocol_version": options["protocol"],
        "env": {},
        "metadata": metadata,
    }
    try:
        text = (json.dumps(spec, indent=2, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:
        raise ValueError("a kernelspec's texts must be UTF-8") from None
    folder = f"{prefix}/{'' if options['where'] == 'user' else 'share/jupyter/'}kernels/{name}"
    make_folders(folder)
    write_files(folder, logos, text)
    return f"Installed kernelspec {name} in {folder}\n"


def main() -> int:
    options, folder, kernel_env, logos, program, *words = sys.argv[1:]
    argv = [program, "jupyter", "run", "-f", "{connection_file}", *words]
    try:
        os.write(1, os.fsencode(install(json.loads(options), folder, kernel_env, logos, argv)))
    except OSError:
        why = "standard output cannot be written"
    except ValueError as e:
        why = str(e)
    else:
        return 0
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in why)
    print(f"cellgate jupyter install: {shown}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
