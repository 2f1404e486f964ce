"""Functions of srt's module of this name. cellgate's own sandbox decides by none of them (docs/settings.md)."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import Literal

Platform = Literal["macos", "linux", "windows", "unknown"]

# A part of the names that are never written: docs/names.md has all.
DANGEROUS_FILES: tuple[str, ...] = (
    ".gitconfig",
    ".gitmodules",
    ".bashrc",
    ".bash_profile",
    ".zshrc",
    ".zprofile",
    ".profile",
    ".ripgreprc",
    ".mcp.json",
)
DANGEROUS_DIRECTORIES: tuple[str, ...] = (".git", ".vscode", ".idea")

ENCODED_CHARACTERS = 100
"""Characters of a command that violations are compared by, as in srt."""


def get_platform() -> Platform:
    """The operating system."""
    names: dict[str, Platform] = {"darwin": "macos", "linux": "linux", "win32": "windows"}
    return names.get(sys.platform, "unknown")


def get_dangerous_directories() -> list[str]:
    """Folders that are never written as a whole; of .git only parts are protected."""
    return [*(d for d in DANGEROUS_DIRECTORIES if d != ".git"), ".claude/commands", ".claude/agents"]


def normalize_case_for_comparison(path_str: str) -> str:
    """The path in lower case."""
    return path_str.lower()


def contains_glob_chars(path_pattern: str) -> bool:
    """Whether the path is a pattern."""
    return any(c in path_pattern for c in "*?[]")


def remove_trailing_glob_suffix(path_pattern: str) -> str:
    """The path without "/**" at its end, which means the same."""
    return path_pattern.removesuffix("/**")


def is_symlink_outside_boundary(original_path: str, resolved_path: str) -> bool:
    """Whether a path without its links is elsewhere than in the path itself."""
    original, resolved = os.path.normpath(original_path), os.path.normpath(resolved_path)
    if original.startswith(("/tmp/", "/var/")):
        resolved = resolved.removeprefix("/private")  # macOS
    return resolved != original and not resolved.startswith(original + "/")


def normalize_path_for_sandbox(path_pattern: str) -> str:
    """The absolute path; links are resolved if they stay in it, and in patterns not at all."""
    path = os.path.abspath(os.path.expanduser(path_pattern))
    resolved = path if contains_glob_chars(path) else os.path.realpath(path)
    return path if is_symlink_outside_boundary(path, resolved) else resolved


def get_default_write_paths() -> list[str]:
    """What every command can write: devices, and a folder for temporary files of its own."""
    return [*(f"/dev/{d}" for d in ("stdout", "stderr", "null", "tty")), f"/tmp/claude-{os.geteuid()}"]


def generate_proxy_env_vars(http_proxy_port: int | None = None, socks_proxy_port: int | None = None) -> list[str]:
    """Variables that name proxies at these ports, as "NAME=VALUE"."""
    env = {"SANDBOX_RUNTIME": "1", "TMPDIR": "/tmp/claude"}
    if http_proxy_port or socks_proxy_port:
        env |= {n: "localhost,127.0.0.1,::1" for n in ("NO_PROXY", "no_proxy")}
    if http_proxy_port:
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        env |= {n: f"http://localhost:{http_proxy_port}" for n in names}
    if socks_proxy_port:
        names = ("ALL_PROXY", "all_proxy", "FTP_PROXY", "ftp_proxy")
        env |= {n: f"socks5h://localhost:{socks_proxy_port}" for n in names}
    return [f"{name}={value}" for name, value in env.items()]


def encode_sandboxed_command(command: str) -> str:
    """The beginning of a command as base64."""
    return base64.b64encode(command[:ENCODED_CHARACTERS].encode(errors="surrogateescape")).decode()


def decode_sandboxed_command(encoded_command: str) -> str:
    """The reverse of encode_sandboxed_command()."""
    return base64.b64decode(encoded_command.encode(), validate=True).decode(errors="surrogateescape")


def state_folder() -> Path:
    """cellgate's folder for its own state, which no sandbox shows."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else Path.home() / ".local/state") / "cellgate"
