"""Sessions whose language is the shell: one bash runs all cells (lang_shell.bash)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cellgate_kernel import jsontext
from cellgate_kernel.languages import FOLDER, Content, Language, cell_error, find_tool, rejected_error, tools_package
from cellgate_kernel.values import Json, ValueProblem, text_of

if TYPE_CHECKING:
    from cellgate_kernel.kernel import Kernel

# Calls of tools at once, by background commands and pipelines.
_SLOTS = 16
_TOOL_ERROR, _REFUSED = 1, 4

USAGE = """usage: mcptools SERVER TOOL [NAME=VALUE]...
       mcptools SERVER TOOL --json OBJECT
       mcptools search WORDS...
       mcptools help [SERVER [TOOL]]"""

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# The word at the end of code that is completed; what a command's name may follow.
_WORD = re.compile(r"[\w./~+@%:,=-]+\Z")
_COMMAND = re.compile(r"(?:^|[\n;|&(`{!]|\b(?:then|do|else|if|while|until|time))\s*\Z")
_KEYWORDS = re.compile("case|coproc|do|done|elif|else|esac|fi|for|function|if|in|select|then|time|until|while")
# Variables with a meaning for bash or the dynamic linker: some are code.
_OWN = re.compile(
    "CDPATH|CHILD_MAX|COLUMNS|COPROC|DIRSTACK|EMACS|ENV|EPOCHREALTIME|EPOCHSECONDS|EUID|EXECIGNORE|FCEDIT|"
    "FIGNORE|FUNCNAME|FUNCNEST|GLOBIGNORE|GROUPS|HISTCMD|HISTCONTROL|HISTFILE|HISTFILESIZE|HISTIGNORE|HISTSIZE|"
    "HISTTIMEFORMAT|HOME|HOSTFILE|HOSTNAME|HOSTTYPE|IFS|IGNOREEOF|INPUTRC|INSIDE_EMACS|LANG|LANGUAGE|LINENO|"
    "LINES|MACHTYPE|MAIL|MAILCHECK|MAILPATH|MAPFILE|OLDPWD|OPTARG|OPTERR|OPTIND|OSTYPE|PATH|PIPESTATUS|"
    "POSIXLY_CORRECT|PPID|PROMPT_COMMAND|PROMPT_DIRTRIM|PS0|PS1|PS2|PS3|PS4|PWD|RANDOM|REPLY|SECONDS|SHELL|"
    "SHELLOPTS|SHLVL|SRANDOM|TIMEFORMAT|TMOUT|TMPDIR|UID|_|auto_resume|histchars"
)
_OWN_BEGIN = ("BASH", "COMP_", "COMPREPLY", "LC_", "LD_", "READLINE_", "__cg_")


class _UsageError(Exception):
    pass


class Shell(Language):
    """A bash that stays."""

    name = "shell"
    title = "the shell"
    state = "its variables, functions and folder"

    def __init__(self, kernel: Kernel, path: str) -> None:
        super().__init__(kernel, path)
        self._dir = ""
        self._fifos: list[int] = []
        self._file = ""  # of the cell
        self._trace = ""
        self._interrupted = False  # since the last cell: bash may have left its streams redirected
        self._calls: dict[int, asyncio.Task[Any]] = {}  # by slot, until the command has its end
        self._texts: dict[str, int] = {}  # hashes of variables whose text is JSON

    def command(self, fd: int) -> list[str]:
        return ["bash", "--norc", "--noprofile", os.path.join(FOLDER, "lang_shell.bash"), self._dir, str(fd)]

    def before_start(self) -> None:
        self._trace, self._texts, self._interrupted = "", {}, False
        if not self._dir:
            self._dir = tempfile.mkdtemp(prefix="shell-")
        self._make_folder()
        for slot in range(_SLOTS):
            self._free(slot)

    def _make_folder(self) -> None:
        """Make the FIFOs, also again when a cell has removed the folder, or put something else there."""
        if os.path.lexists(self._dir) and not os.path.isdir(self._dir):
            os.unlink(self._dir)
        os.makedirs(self._dir, 0o700, exist_ok=True)
        if os.path.exists(os.path.join(self._dir, "0")):
            return
        for fd in self._fifos:
            os.close(fd)
        self._fifos = []
        for n in range(_SLOTS):
            path = os.path.join(self._dir, str(n))
            os.mkfifo(path, 0o600)
            self._fifos.append(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))

    def request(self, text: str, number: int, metadata: Content) -> bytes:
        """Write the cell to a file, whose name and lines are those of bash's messages."""
        self._make_folder()
        self._free_slots()
        place = metadata.get("cellgate")
        name, line = f"In[{self.kernel.shell.execution_count}]", 1
        if isinstance(place, dict) and isinstance(place.get("file"), str) and isinstance(place.get("line"), int):
            name, line = os.path.basename(place["file"]), max(1, min(place["line"], 1_000_000))
        self._file = os.path.join(self._dir, re.sub(r"[^\w.\[\]-]|^\d+$", "_", name, flags=re.ASCII))
        with open(self._file, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\n" * (line - 1) + self._trace + text)
        reset, self._interrupted = self._interrupted, False
        return f"{number} {reset:d} {self._file}\n".encode()

    def interrupt(self, running: asyncio.Future[Content]) -> None:
        """The next cell has the session's streams: bash forgets redirections when a trap runs while it makes them."""
        self._interrupted = True
        super().interrupt(running)

    async def ask(self, data: Callable[[int], bytes]) -> Content:
        """Remove the shell's own files afterwards: they are none that the cell has made."""
        try:
            return await super().ask(data)
        finally:
            for path in (self._file, os.path.join(self._dir, "traps")):
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def check(self, reply: Content) -> None:
        self._trace = "set -x; " if "x" in str(reply.get("options")) else ""  # off between cells
        status = reply.get("status")
        if status:
            refused = self.refused and status == _REFUSED
            raise cell_error("ExitStatus", str(status), [f"exit status {status}"], refused)

    # ---------------------------------------------------------------- variables

    def why_not(self, name: str) -> str:
        if _KEYWORDS.fullmatch(name):
            return "is a keyword of the shell"
        if not _NAME.fullmatch(name):
            return "is not the name of a variable"
        return "is reserved for the shell" if _OWN.fullmatch(name) or name.startswith(_OWN_BEGIN) else ""

    async def complete(self, code: str) -> tuple[str, list[str]]:
        """Names of commands, variables and files; the shell expands nothing of the word."""
        word = _WORD.search(code)
        text, before = (word.group(), code[: word.start()]) if word else ("", code)
        kind = "v" if before.endswith(("$", "${")) else "f"
        if kind == "f" and "/" not in text and _COMMAND.search(before):
            kind = "c"
        if "\n" in text or not text and kind != "v":
            return text, []
        found = await self._values("__cg_complete", [kind.encode(), text.encode(errors="surrogateescape")])
        names = {name.decode(errors="surrogateescape") for name in found}
        return text, sorted(name for name in names if not name.startswith("__cg_"))

    async def put(self, made: Content, lossy: bool) -> None:
        words, texts = [], {}
        for name, value in made.items():
            if isinstance(value, Json) and value.text[:1] == b'"':
                value = json.loads(value.text)
            plain = isinstance(value, str) and "\0" not in value
            text = value.encode(errors="surrogateescape") if plain else text_of(value)
            words += [name.encode(), text]
            if not plain:
                texts[name] = hash(text)
        if failed := (await self._values("__cg_put", words))[:1]:
            name = failed[0].decode()
            raise ValueProblem("NotSet", f"{name} cannot be set: it is readonly", name)
        self._texts = {name: text for name, text in self._texts.items() if name not in made} | texts

    async def take(self, names: list[str], lossy: bool) -> Content:
        """Texts; arrays as lists and objects of texts; and what was set from JSON, while the text is the same."""
        words = iter(await self._values("__cg_take", [name.encode() for name in names]))
        errors = "replace" if lossy else "surrogateescape"
        found: Content = {}
        for word, kind in zip(words, words, strict=False):
            name, parts = word.decode(), [next(words) for _ in range(int(kind[1:]))]
            if kind[:1] == b"s" and self._texts.get(name) == hash(parts[0]):
                found[name] = Json(parts[0])
                continue
            texts = [part.decode(errors=errors) for part in parts]
            if kind[:1] == b"A":
                half = len(texts) // 2
                found[name] = dict(zip(texts[:half], texts[half:], strict=True))
            else:
                found[name] = texts if kind[:1] == b"a" else texts[0]
        return found

    async def _values(self, function: str, words: list[bytes]) -> list[bytes]:
        """Give the words to a function of lang_shell.bash; the words that it gives back."""
        self._make_folder()
        path = os.path.join(self._dir, "values")
        with open(path, "wb") as file:
            for word in words:
                file.writelines((word, b"\0"))
        with open(f"{path}.bash", "w", encoding="ascii") as file:
            file.write(f"{function}; __cg_ret")
        await self.swap(lambda number: f"{number} 0 {path}.bash\n".encode())
        try:
            with open(f"{path}.out", "rb") as file:
                return file.read().split(b"\0")[:-1]
        finally:
            for end in ("", ".bash", ".out"):
                os.unlink(path + end)

    # ---------------------------------------------------------------- mcptools

    def on_message(self, message: Content) -> None:
        call, free = message.get("call"), message.get("free")
        if isinstance(call, int) and 0 <= call < _SLOTS:
            self._calls[call] = self.spawn(self._call(call), functools.partial(self._finish, call))
        elif isinstance(free, int) and 0 <= free < _SLOTS and self._holder(free) == message.get("by"):
            self._free(free)

    def _holder(self, slot: int) -> int | None:
        """The process that has it: another one may, where a process had ended before its last message was read."""
        with (
            contextlib.suppress(OSError, ValueError),
            open(os.path.join(self._dir, f"{slot}.lock"), encoding="ascii") as file,
        ):
            return int(file.read())
        return None

    def _free(self, slot: int) -> None:
        if task := self._calls.pop(slot, None):
            task.cancel()
        with contextlib.suppress(BlockingIOError):
            os.read(self._fifos[slot], 64)  # a status that nobody has read
        for end in ("args", "out", "err", "lock"):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._dir, f"{slot}.{end}"))

    def _free_slots(self) -> None:
        """Free those of processes that have ended, by an interrupt perhaps."""
        for slot in list(self._calls):
            try:
                os.kill(self._holder(slot) or os.getpid(), 0)
            except ProcessLookupError:
                self._free(slot)
            except (OSError, OverflowError):
                continue

    async def _call(self, slot: int) -> tuple[int, str, str]:
        try:
            with open(os.path.join(self._dir, f"{slot}.args"), encoding="utf-8") as file:
                arguments = file.read().split("\0")[:-1]
        except (OSError, ValueError) as e:
            return _TOOL_ERROR, "", f"mcptools: {e}"
        return await self._mcptools(arguments)

    def _finish(self, slot: int, task: asyncio.Task[Any]) -> None:
        """Give the command its end, however the call has ended, unless another one has its slot."""
        if self._calls.get(slot) is not task:
            return
        if task.cancelled():
            status, out, error = _TOOL_ERROR, "", "mcptools: the call was cancelled by an interrupt"
        elif problem := task.exception():
            status, out, error = _TOOL_ERROR, "", f"mcptools: {problem}"
        else:
            status, out, error = task.result()
        with contextlib.suppress(OSError):
            for name, text in (("out", out), ("err", error)):
                with open(os.path.join(self._dir, f"{slot}.{name}"), "w", encoding="utf-8", errors="replace") as file:
                    file.write(text)
            os.write(self._fifos[slot], b"%d\n" % status)

    async def _mcptools(self, arguments: list[str]) -> tuple[int, str, str]:
        """Status, output and error of the command."""
        from cellgate_tools import ToolRunnerError

        try:
            if arguments[:1] == ["search"]:
                return 0, repr(tools_package().search(" ".join(arguments[1:]))), ""
            if arguments[:1] == ["help"]:
                return 0, _help(*arguments[1:3]), ""
            if len(arguments) < 2:
                raise _UsageError(USAGE)
            module = find_tool(arguments[0], arguments[1])
            value = await self.call_tool(arguments[0], arguments[1], _parameters(module, arguments[2:]))
        except (LookupError, _UsageError) as e:
            return _TOOL_ERROR, "", f"mcptools: {e.args[0]}"
        except ToolRunnerError as e:
            return _REFUSED if isinstance(e, rejected_error()) else _TOOL_ERROR, "", f"mcptools: {e}"
        return 0, value if isinstance(value, str) else "" if value is None else jsontext.dumps(value), ""


def _help(server: str = "", tool: str = "") -> str:
    if not server:
        return f"{USAGE}\nservers: {', '.join(tools_package().servers()) or 'none'}"
    if not tool:
        return repr(tools_package().tools(server, describe=True))
    return find_tool(server, tool).__doc__ or ""


def _parameters(module: Any, words: list[str]) -> Content:
    """The arguments of the command line; a value is text where the tool's schema says so, else JSON if it can be."""
    if words[:1] == ["--json"]:
        try:
            value = json.loads(words[1]) if len(words) == 2 else None
        except ValueError as e:
            raise _UsageError(f"--json: {e}") from None
        if not isinstance(value, dict):
            raise _UsageError("--json needs one JSON object")
        return value
    schema = module._tool.entry.get("in")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    params: Content = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise _UsageError(f"{word!r} is not NAME=VALUE")
        field = fields.get(name) if isinstance(fields, dict) else None
        params[name] = text
        if not (isinstance(field, dict) and field.get("type") == "string"):
            with contextlib.suppress(ValueError):
                params[name] = json.loads(text)
    return params


def make(kernel: Kernel, path: str) -> Language:
    """The language of a kernel."""
    return Shell(kernel, path)
