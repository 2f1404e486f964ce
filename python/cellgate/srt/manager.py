"""SandboxManager: command lines that run sandboxed, by one configuration for the whole program."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cellgate._core import RUNTIME
from cellgate.srt._host import Host
from cellgate.srt.config import NetworkConfig, RipgrepConfig, SandboxRuntimeConfig
from cellgate.srt.sandbox_utils import (
    Platform,
    contains_glob_chars,
    decode_sandboxed_command,
    encode_sandboxed_command,
    get_default_write_paths,
    get_platform,
    remove_trailing_glob_suffix,
)
from cellgate.srt.schemas import (
    FsReadRestrictionConfig,
    FsWriteRestrictionConfig,
    NetworkHostPattern,
    NetworkRestrictionConfig,
    SandboxAskCallbackType,
)
from cellgate.srt.violation_store import SandboxViolationEvent, SandboxViolationStore

# Where every sandbox's own proxy listens, inside.
_HTTP_PORT, _SOCKS_PORT = 3128, 1080
_LINE_MAX = 1000
_CHECK_S = 60.0
ASK_SECONDS = 600
"""A question that is not answered in this time is a refusal."""

_config: SandboxRuntimeConfig | None = None
_host: Host | None = None
_initialized = False
_ask_callback: SandboxAskCallbackType | None = None
_loop: asyncio.AbstractEventLoop | None = None  # of the program; None when it has none that runs
_watch_files = False
_networks: dict[str, NetworkConfig | None] = {}  # of custom configurations, by the key of their settings file
_notifying = False
_sandbox_violation_store = SandboxViolationStore()


def _matches_domain_pattern(hostname: str, pattern: str) -> bool:
    """Whether an entry of a list means this host."""
    hostname, pattern = hostname.lower(), pattern.lower()
    return hostname.endswith(pattern[1:]) if pattern.startswith("*.") else hostname == pattern


def program() -> Path:
    """The program `cellgate` of this installation."""
    packaged = RUNTIME / "bin/cellgate"
    if packaged.exists():
        return packaged
    # PREFIX/LIBDIR/cellgate/package/cellgate/srt/manager.py
    libraries = [p for p in Path(__file__).parents[4:7] if p.name in ("lib", "lib64")]
    return libraries[0].parent / "bin/cellgate" if libraries else packaged


def _program_loop() -> asyncio.AbstractEventLoop | None:
    return _loop if _loop and _loop.is_running() else None


def _clean(text: str) -> str:
    """One line of printable characters, without the brackets that end a block of violations."""
    kept = "".join(c if c.isprintable() and c not in "<>" else " " for c in text[:_LINE_MAX])
    return kept if len(text) <= _LINE_MAX else kept + "..."


def _denied(encoded_command: str, message: dict[str, Any]) -> None:
    global _notifying
    event = SandboxViolationEvent(
        line=_clean(message["denial"]["line"]),
        command=decode_sandboxed_command(encoded_command),
        encoded_command=encoded_command,
    )
    _sandbox_violation_store.append(event, message["unsent"])
    if not (loop := _program_loop()):
        _sandbox_violation_store.notify_listeners()
    elif not _notifying:  # once for many: a command can be denied faster than a program handles it
        _notifying = True
        loop.call_soon_threadsafe(_notify)


def _notify() -> None:
    global _notifying
    _notifying = False
    _sandbox_violation_store.notify_listeners()


async def _ask(question: dict[str, Any]) -> bool:
    """In the host's thread: has the program's loop call the callback; if none runs, calls it here."""
    callback = _ask_callback
    if callback is None:
        return False

    async def call() -> bool:
        answer: object = callback(NetworkHostPattern(host=question["host"], port=question["port"]))
        return (await answer if inspect.isawaitable(answer) else answer) is True

    try:
        if loop := _program_loop():
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), loop))
        return await call()
    except Exception:
        return False  # as in srt


def _settings(config: SandboxRuntimeConfig) -> dict[str, Any]:
    """The content of the settings file for a command with this configuration."""
    settings = config.settings()
    settings["network"] = _network(config.network)
    if _config is not None and config is not _config:
        # As in srt, options that a configuration for one command leaves out are those of the program's.
        general = _config.settings()
        limits = {**general["cellgate"]["limits"], **settings["cellgate"]["limits"]}
        own = {**general["cellgate"], **settings["cellgate"], "limits": limits}
        settings = {**general, **settings, "cellgate": own}
        if config.filesystem.allow_git_config is None and _config.filesystem.allow_git_config is not None:
            settings["filesystem"]["allowGitConfig"] = _config.filesystem.allow_git_config
    return settings


def _network(own: NetworkConfig | None) -> dict[str, Any]:
    """The rules for a command with lists of its own, or for all others. Denials of the program's are for all."""
    general = _config.network if _config else NetworkConfig()
    config = own or general
    network = {
        **general.model_dump(by_alias=True, exclude_none=True),
        **config.model_dump(by_alias=True, exclude_none=True),
        "deniedDomains": list(dict.fromkeys([*general.denied_domains, *config.denied_domains])),
    }
    if not config.allowed_domains:
        network["strictAllowlist"] = True  # as in srt's Python port: no network, and no questions
    return network


def _apply() -> None:
    """Gives the program's rules for the network to the commands that run."""
    for key, own in _networks.items():
        _serving().change(key, _network(own))


def _serving() -> Host:
    global _host
    if _host is None:
        _host = Host(_denied, _ask)
    return _host


def _forget_host() -> None:
    global _host, _initialized, _loop
    if _host is not None:
        _host.forget()
        _sandbox_violation_store.renew_lock()
    _host, _initialized, _loop = None, False, None
    _networks.clear()


os.register_at_fork(after_in_child=_forget_host)


def _failure(settings: dict[str, Any]) -> str | None:
    """Why no command can run with these settings; None if it can."""
    if get_platform() != "linux":
        return f"cellgate runs on Linux, and this is {get_platform()}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "settings.json")
        file.write_text(json.dumps(settings))
        argv = [str(program()), "sandbox", "-q", "-s", str(file), "--", "true"]
        try:
            result = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", timeout=_CHECK_S
            )
        except (OSError, subprocess.TimeoutExpired) as e:
            return str(e)
    # 126, 127: these settings hide `true` itself.
    return None if result.returncode in (0, 126, 127) else result.stderr.strip() or f"exit status {result.returncode}"


class SandboxManager:
    """Runs commands of this program in sandboxes: a class without instances, as in srt."""

    @staticmethod
    async def initialize(
        runtime_config: SandboxRuntimeConfig | Mapping[str, Any],
        sandbox_ask_callback: SandboxAskCallbackType | None = None,
        enable_log_monitor: bool = False,
    ) -> None:
        """Checks that commands can run with this configuration, and makes it the program's.

        `sandbox_ask_callback` decides about hosts that are on no list, unless nothing is allowed; only True
        allows. `enable_log_monitor`: also report files that could not be opened, which makes opening files
        slower (docs/denials.md, Watched files). Does nothing when there is a configuration already: see
        update_config(). Raises RuntimeError.
        """
        global _config, _ask_callback, _initialized, _loop, _watch_files
        if _initialized:
            return
        config = copy.deepcopy(SandboxRuntimeConfig.model_validate(runtime_config))
        if failure := await asyncio.to_thread(_failure, config.settings()):
            raise RuntimeError(f"Sandbox dependencies are not available on this system. {failure}")
        if _initialized:  # meanwhile
            return
        _config, _ask_callback, _watch_files = config, sandbox_ask_callback, enable_log_monitor
        _loop = asyncio.get_running_loop()
        _serving()
        _initialized = True
        _apply()

    @staticmethod
    def is_supported_platform(platform: Platform) -> bool:
        """Whether srt has a sandbox for this operating system. cellgate has one for Linux only."""
        return platform in ("macos", "linux")

    @staticmethod
    def is_sandboxing_enabled() -> bool:
        """Whether there is a configuration."""
        return _config is not None

    @staticmethod
    def check_dependencies(ripgrep_config: RipgrepConfig | None = None) -> bool:
        """Whether commands can be sandboxed here, which is found by running one. `cellgate doctor` says why not."""
        return _failure(SandboxRuntimeConfig.model_validate({"network": {}, "filesystem": {}}).settings()) is None

    @staticmethod
    def get_fs_read_config() -> FsReadRestrictionConfig:
        """What cannot be read."""
        paths = _config.filesystem.deny_read if _config else []
        return FsReadRestrictionConfig([remove_trailing_glob_suffix(p) for p in paths])

    @staticmethod
    def get_fs_write_config() -> FsWriteRestrictionConfig:
        """What can be written. Patterns allow nothing."""
        files = _config.filesystem if _config else None
        allowed = [remove_trailing_glob_suffix(p) for p in files.allow_write] if files else []
        return FsWriteRestrictionConfig(
            allow_only=[*get_default_write_paths(), *(p for p in allowed if not contains_glob_chars(p))],
            deny_within_allow=[remove_trailing_glob_suffix(p) for p in files.deny_write] if files else [],
        )

    @staticmethod
    def get_network_restriction_config() -> NetworkRestrictionConfig:
        """The lists of hosts; None for an empty one."""
        if _config is None:
            return NetworkRestrictionConfig()
        return NetworkRestrictionConfig(_config.network.allowed_domains or None, _config.network.denied_domains or None)

    @staticmethod
    def get_allow_unix_sockets() -> list[str] | None:
        """Unix sockets that commands may connect to."""
        return _config.network.allow_unix_sockets if _config else None

    @staticmethod
    def get_allow_all_unix_sockets() -> bool | None:
        """Whether commands may connect to all of them."""
        return _config.network.allow_all_unix_sockets if _config else None

    @staticmethod
    def get_allow_local_binding() -> bool | None:
        """Whether ports that commands listen at are ports of this machine."""
        return _config.network.allow_local_binding if _config else None

    @staticmethod
    def get_ignore_violations() -> dict[str, list[str]] | None:
        """Violations that are not reported."""
        return _config.ignore_violations if _config else None

    @staticmethod
    def get_enable_weaker_nested_sandbox() -> bool | None:
        """Whether the machine's /proc is shown where a new one cannot be mounted."""
        return _config.enable_weaker_nested_sandbox if _config else None

    @staticmethod
    def get_ripgrep_config() -> RipgrepConfig:
        """Has no effect."""
        return _config.ripgrep if _config and _config.ripgrep else RipgrepConfig()

    @staticmethod
    def get_mandatory_deny_search_depth() -> int:
        """See mandatoryDenySearchDepth in docs/settings.md: cellgate searches in the landlock tier only."""
        return _config.mandatory_deny_search_depth or 3 if _config else 3

    @staticmethod
    def get_allow_git_config() -> bool:
        """Whether `.git/config` can be written."""
        return bool(_config and _config.filesystem.allow_git_config)

    @staticmethod
    def get_proxy_port() -> int | None:
        """The port of the HTTP proxy inside of every sandbox, or that of an external one; None: not initialized."""
        if not _initialized:
            return None
        return (_config and _config.network.http_proxy_port) or _HTTP_PORT

    @staticmethod
    def get_socks_proxy_port() -> int | None:
        """The same for SOCKS."""
        if not _initialized:
            return None
        return (_config and _config.network.socks_proxy_port) or _SOCKS_PORT

    @staticmethod
    def get_linux_http_socket_path() -> str | None:
        """None: no socket leads to the proxy."""
        return None

    @staticmethod
    def get_linux_socks_socket_path() -> str | None:
        """None, like get_linux_http_socket_path()."""
        return None

    @staticmethod
    async def wait_for_network_initialization() -> bool:
        """Whether initialize() has succeeded."""
        return _config is not None and _initialized

    @staticmethod
    async def wrap_with_sandbox(
        command: str,
        bin_shell: str | None = None,
        custom_config: SandboxRuntimeConfig | Mapping[str, Any] | None = None,
    ) -> str:
        """A command line for a POSIX shell that runs `command` in a sandbox, with bash or `bin_shell`.

        It belongs to this process: after reset(), and when the process has ended, it does not run. Files are
        restricted by the configuration of now, or by `custom_config`, and the network by the one in force when
        the command connects. A dictionary as `custom_config` changes what it names, and the rest is the
        configuration's. Without a configuration nothing is allowed. Raises ValueError for a NUL.
        """
        if "\0" in command or "\0" in (bin_shell or ""):
            raise ValueError("a command cannot contain NUL")
        config = _config or SandboxRuntimeConfig.model_validate({"network": {}, "filesystem": {}})
        network = None
        if isinstance(custom_config, SandboxRuntimeConfig):
            config = custom_config
            network = copy.deepcopy(config.network)
        elif custom_config is not None:
            config = config.changed_by(custom_config)
            network = config.network if "network" in custom_config else None
        host = _serving()
        settings = _settings(config)
        # The network's lists change: a configuration has one file whatever they are, unless they are its own.
        key = json.dumps([{**settings, "network": None}, network.model_dump() if network else None], sort_keys=True)
        file = host.settings_file(key, settings)
        _networks[key] = network
        words = [str(program()), "sandbox", "--quiet", "--settings", str(file.path)]
        words += ["--control-socket", str(host.path)]
        words += ["--control-id", f"{file.number}:{encode_sandboxed_command(command)}"]
        words += [f"--ask={ASK_SECONDS}"] if _ask_callback else []
        words += ["--watch-files"] if _watch_files else []
        words += (
            ["--", bin_shell, "-c", *(["--"] if command.startswith("-") else []), command]
            if bin_shell
            else ["-c", command]
        )
        return shlex.join(words)

    @staticmethod
    def get_config() -> SandboxRuntimeConfig | None:
        """The configuration."""
        return _config

    @staticmethod
    def update_config(new_config: SandboxRuntimeConfig | Mapping[str, Any]) -> None:
        """Another configuration. Its rules for the network apply at once, to commands that run, too.

        Raises RuntimeError, and changes nothing, if no command could run with it.
        """
        global _config
        config = copy.deepcopy(SandboxRuntimeConfig.model_validate(new_config))
        if failure := _failure(config.settings()):
            raise RuntimeError(f"update_config: the configuration is not changed. {failure}")
        _config = config
        _apply()

    @staticmethod
    async def reset() -> None:
        """Ends what initialize() has begun: commands that run have no network any more. Violations are kept."""
        global _host, _initialized, _ask_callback, _loop, _watch_files
        host, _host = _host, None
        _initialized, _ask_callback, _loop, _watch_files = False, None, None, False
        _networks.clear()
        if host:
            await asyncio.to_thread(host.close)

    @staticmethod
    def get_sandbox_violation_store() -> SandboxViolationStore:
        """The violations, with those of all commands that have ended by now."""
        if _host:
            _host.settle()
        return _sandbox_violation_store

    @staticmethod
    def annotate_stderr_with_sandbox_failures(command: str, stderr: str) -> str:
        """What a command has written, and below it its violations. They are one printable line each."""
        if _config is None:
            return stderr
        violations = SandboxManager.get_sandbox_violation_store().get_violations_for_command(command)
        if not violations:
            return stderr
        return "\n".join([stderr, "<sandbox_violations>", *(v.line for v in violations), "</sandbox_violations>"])

    @staticmethod
    def get_linux_glob_pattern_warnings() -> list[str]:
        """Patterns that have no effect: those that allow writing."""
        paths = _config.filesystem.allow_write if _config else []
        return [p for p in paths if contains_glob_chars(remove_trailing_glob_suffix(p))]
