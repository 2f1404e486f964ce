"""The IPython shell of a kernel.

The class is named ZMQInteractiveShell and its config has IPKernelApp because pandas, tqdm and other
libraries detect notebooks by them.
"""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import ast
import atexit
import json
import linecache
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from IPython.core import page
from IPython.core.autocall import ExitAutocall
from IPython.core.compilerop import CachingCompiler
from IPython.core.error import UsageError
from IPython.core.interactiveshell import (
    ExecutionInfo,
    ExecutionResult,
    InteractiveShell,
    InteractiveShellABC,
)
from IPython.core.payload import PayloadManager
from IPython.core.profiledir import ProfileDir
from IPython.utils.text import LSString, SList
from traitlets import Instance, Type, default
from traitlets.config import Config

import _cellgate
from cellgate_kernel import (
    commands,
    completion,
    debugger,
    denials,
    errors,
    formatting,
    jsontext,
    keys,
    missing,
    parents,
    reserve,
    started,
    transforms,
)

if TYPE_CHECKING:
    from cellgate_kernel.frontend import FrontendKernel

EXIT_NOTICE = "the host application ends the session, a cell cannot; variables stay, and the next cell goes on"


class KernelExit(ExitAutocall):
    """exit and quit: end the cell like sys.exit(), and ask a Jupyter front-end to end the kernel."""

    def __call__(self, code: object = None, keep_kernel: bool = False, **_options: Any) -> None:
        shell: Any = self._ip
        if not shell.for_notebook:
            raise SystemExit(code)
        shell.write_payload({"source": "ask_exit", "keepkernel": bool(keep_kernel)})


# How tracebacks of IPython and of the standard library name a line of a cell.
_PLACE = re.compile(r'(?P<cell>Cell In\[\d+\]), line (?P<line>\d+)|File "<(?P<quoted>Cell In\[\d+\](?:\.\d+)?)>"')
# Most characters of the name of a file whose cells are run.
_MAX_LINE = 1_000_000


class KernelCompiler(CachingCompiler):
    """Names the code of cells, for readable tracebacks."""

    _codes: dict[int, dict[str, int]]
    # The folder of cells' files, if a debugger runs or a notebook can start one.
    cells_are_files = False

    def __init__(self) -> None:
        super().__init__()
        self._codes = {}
        self._next: tuple[str, int] | None = None
        self._places: dict[str, tuple[str, int]] = {}

    def forget(self) -> None:
        """Forget all cells."""
        self._codes.clear()
        self._places.clear()

    def place(self, metadata: dict[str, Any]) -> None:
        """Set the file and line of the next cell: {"cellgate": {"file": NAME, "line": 1...}}."""
        where = metadata.get("cellgate")
        file, line = (where.get("file"), where.get("line")) if isinstance(where, dict) else (None, None)
        self._next = None
        if isinstance(file, str) and file.isprintable() and isinstance(line, int) and 0 < line < _MAX_LINE:
            self._next = (file, line - 1)

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        name = super().cache(transformed_code, number, raw_code)
        self._places.pop(name, None)
        if self._next is not None:
            self._places[name], self._next = self._next, None
            lines = linecache.getlines(name)
            linecache.cache[name] = (len(transformed_code), None, ["\n"] * self._places[name][1] + lines, name)
        return name

    def ast_parse(self, source: str, filename: str = "<unknown>", symbol: str = "exec") -> ast.AST:
        """IPython's function, with lines of the file that contains the cell."""
        _, offset = self._places.get(filename, ("", 0))
        try:
            tree = super().ast_parse(source, filename, symbol)
            return ast.increment_lineno(tree, offset) if offset else tree
        except SyntaxError as e:
            if e.lineno is not None:
                e.lineno += offset
            if e.end_lineno is not None:
                e.end_lineno += offset
            raise

    def with_places(self, frames: list[str]) -> list[str]:
        """The lines of a traceback, with FILE:LINE for cells of a file."""
        files = {name.removeprefix("<").removesuffix(">"): file for name, (file, _) in self._places.items()}
        if not files:
            return frames

        def place_of(m: re.Match[str]) -> str:
            file = files.get(m["cell"] or m["quoted"])
            if file is None:
                return m[0]
            return f"File {file}:{m['line']}" if m["line"] else f'File "{file}"'

        return [_PLACE.sub(place_of, frame) for frame in frames]

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        """`<Cell In[3]>`, or a file for a debugger; a suffix keeps names of uncounted cells apart."""
        if self.cells_are_files:
            return debugger.cell_file(raw_code)
        codes = self._codes.setdefault(number, {})
        suffix = codes.setdefault(transformed_code, len(codes) + 1)
        return f"<Cell In[{number}].{suffix}>" if suffix > 1 else f"<Cell In[{number}]>"


class PerThread(threading.local):
    """State of a running cell for its reply, per thread."""

    source = ""
    """The transformed code."""
    number = 0
    """Its number, also if it does not count."""
    started = 0
    """The number of programs that were started before the cell."""
    stored = False
    """True if it counts and is kept in the history."""
    error: tuple[BaseException, str] | None = None
    """The exception that was sent last, and the content of its message."""
    result_error: tuple[BaseException, str] | None = None
    """The same for an exception while the result was formatted: the cell has failed."""

    def __init__(self) -> None:
        self.payload: list[dict[str, Any]] = []


class KernelPayloads(PayloadManager):
    """Payloads of the cell that this thread runs."""

    def __init__(self, local: PerThread, **options: Any) -> None:
        super().__init__(**options)
        self._local = local

    @property
    def _payload(self) -> list[dict[str, Any]]:
        return self._local.payload

    @_payload.setter
    def _payload(self, value: list[dict[str, Any]]) -> None:
        self._local.payload = value


class ZMQInteractiveShell(InteractiveShell):
    """InteractiveShell that sends output to the supervisor."""

    display_pub_class = Type(formatting.KernelDisplayPublisher)
    displayhook_class = Type(formatting.KernelDisplayHook)
    compiler_class = Type(KernelCompiler)
    input_transformer_manager = Instance(transforms.KernelTransformerManager, ())

    kernel: FrontendKernel | None = None
    # The reader of the output: missing.JUPYTER, missing.MCP, or "" for another program or a person.
    # The first gets payloads, the others get the same as output.
    front = ""
    # True in a sandbox; the folder of the environment that the host chose, "" for the built-in one.
    sandboxed = True
    environment = ""
    # Per thread that runs cells.
    local: PerThread
    # True while %tb shows the last traceback.
    whole_traceback = False

    # Set by the kernel: how code with and without await is run.
    run_sync: Callable[[Callable[[], Any]], Any]
    run_async: Callable[[Coroutine[Any, Any, Any]], Any]
    was_interrupted: Callable[[], bool]

    # ---------------------------------------------------------------- start

    @default("ipython_dir")
    def _default_ipython_dir(self) -> str:
        return os.path.join(os.path.expanduser("~"), ".ipython")

    @default("profile_dir")
    def _default_profile_dir(self) -> Any:
        return ProfileDir.create_profile_dir(os.path.join(self.ipython_dir, "profile_default"))

    @default("exiter")
    def _default_exiter(self) -> KernelExit:
        return KernelExit(self)

    def init_ipython_dir(self, ipython_dir: Any) -> None:
        """Does nothing: folders are made when they are needed."""

    def init_profile_dir(self, profile_dir: Any) -> None:
        """The same."""

    def init_virtualenv(self) -> None:
        """Does nothing: the interpreter is that of the environment."""

    def init_display_formatter(self) -> None:
        self.display_formatter = formatting.KernelFormatter(parent=self)
        self.configurables.append(self.display_formatter)  # type: ignore[arg-type]  # as IPython itself does
        self.display_formatter.remember_defaults()

    def init_payload(self) -> None:
        self.local = PerThread()
        self.payload_manager = KernelPayloads(self.local, parent=self)
        self.configurables.append(self.payload_manager)  # type: ignore[arg-type]

    def init_hooks(self) -> None:
        super().init_hooks()
        self.set_hook("show_in_pager", page.as_hook(self._show_page), 99)

    def reset(self, new_session: bool = True, aggressive: bool = False) -> None:
        super().reset(new_session, aggressive)
        # multiprocessing uses the first, from the main module; the last would be that of builtins
        for name in ("__spec__", "__loader__", "__package__", "__doc__"):
            self.user_ns.setdefault(name, None)

    def release_cells(self) -> None:
        """At the kernel's end, after atexit functions of cells: release their objects, which closes open files.

        This takes the place of most of IPython's own function for the end. That also makes a new namespace and
        closes the history's database, which nobody reads any more: most of the time that a kernel takes to end.
        """
        self._atexit_once_called = True
        self.last_execution_result = None
        self.displayhook.flush()
        for name in [name for name in self.user_ns if name not in ("__builtin__", "__builtins__", "__name__")]:
            self.user_ns.pop(name, None)
        self.user_ns_hidden.clear()
        self.clear_main_mod_cache()
        if (finalizer := getattr(self.history_manager, "_finalizer", None)) is not None:
            finalizer.detach()

    def init_io(self) -> None:
        """Does nothing: the output is no terminal."""

    def init_completer(self) -> None:
        """Does nothing: the completer is made when it is first used."""

    def __getattr__(self, name: str) -> Any:
        if name != "Completer":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        super().init_completer()
        completion.configure(self.Completer)
        return self.Completer

    def init_magics(self) -> None:
        from cellgate_kernel.magics import KernelMagics

        super().init_magics()
        self.register_magics(KernelMagics)

    def enable_gui(self, gui: str | None = None) -> None:
        """Inline figures and asyncio need no other event loop; other GUIs cannot work here."""
        if gui not in (None, "", "inline", "asyncio", "none"):
            raise UsageError(f"%gui {gui}: a kernel has no display")

    # ---------------------------------------------------------------- running

    def _run_and_show(self, coro: Coroutine[Any, Any, ExecutionResult], is_async: bool) -> ExecutionResult:
        def finish() -> ExecutionResult:
            try:
                coro.send(None)
            except StopIteration as e:
                result: ExecutionResult = e.value
                return result
            raise RuntimeError("code without await has waited")

        result: ExecutionResult = self.run_async(coro) if is_async else self.run_sync(finish)
        return result

    def _run_cell(
        self,
        raw_cell: str,
        store_history: bool,
        silent: bool,
        shell_futures: bool,
        cell_id: str | None,
        cell_meta: dict[str, Any] | None,
    ) -> ExecutionResult:
        problem: Any = None
        try:
            transformed = self.transform_cell(raw_cell)
        except Exception:
            transformed = raw_cell
            problem = sys.exc_info()
        local = self.local
        before = (local.source, local.number, local.stored)
        local.source, local.number, local.stored = transformed, self.execution_count, store_history and not silent
        coro = self.run_cell_async(
            raw_cell,
            store_history=store_history,
            silent=silent,
            shell_futures=shell_futures,
            transformed_cell=transformed,
            preprocessing_exc_tuple=problem,
            cell_id=cell_id,
            cell_meta=cell_meta,
        )
        is_async = transforms.may_wait(transformed) and self.should_run_async(
            raw_cell, transformed_cell=transformed, preprocessing_exc_tuple=problem
        )
        try:
            return self._run_and_show(coro, is_async)
        except BaseException as e:
            self.showtraceback()
            result = ExecutionResult(ExecutionInfo(raw_cell, store_history, silent, shell_futures, cell_id))
            result.error_in_exec = e
            return result
        finally:
            local.source, local.number, local.stored = before

    def run_cell(
        self,
        raw_cell: str,
        store_history: bool = False,
        silent: bool = False,
        shell_futures: bool = True,
        cell_id: str | None = None,
        cell_meta: dict[str, Any] | None = None,
    ) -> ExecutionResult:
        """Run a cell like InteractiveShell, without a copy of its output."""
        result = None
        self.local.result_error = None
        try:
            result = self._run_cell(raw_cell, store_history, silent, shell_futures, cell_id, cell_meta)
        finally:
            self.events.trigger("post_execute")
            if not silent:
                self.events.trigger("post_run_cell", result)
        return result

    def forget_cells(self) -> None:
        """Remove the traces of the first cell, which was not the host's: its name, number, input and result."""
        compiler: Any = self.compile
        history: Any = self.history_manager
        hook: Any = self.displayhook
        compiler.forget()
        if self.execution_count == 1:
            return
        self.execution_count = 1
        for names in (self.user_ns, self.user_ns_hidden):
            for name in ("_", "__", "___", "_1", "_i", "_ii", "_iii", "_i1"):
                names.pop(name, None)
        self.user_ns.update(dict.fromkeys(("_", "__", "___"), ""))
        history.input_hist_parsed[:] = history.input_hist_raw[:] = [""]
        for cache in (history.db_input_cache, history.db_output_cache, history.output_hist, history.output_hist_reprs):
            cache.clear()
        history._i00 = history._i = history._ii = history._iii = ""
        hook._ = hook.__ = hook.___ = ""

    def system(self, cmd: str) -> None:
        """`!cmd`."""
        code = commands.run(self.var_expand(cmd, depth=1))
        self.user_ns["_exit_code"] = code
        if self.system_raise_on_error and code != 0:
            from subprocess import CalledProcessError

            raise CalledProcessError(code, cmd)

    system_piped = system_raw = system

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        """`x = !cmd`."""
        code, text = commands.get_output(self.var_expand(cmd, depth=depth + 1))
        self.user_ns["_exit_code"] = code
        return SList(text.splitlines()) if split else LSString(text)

    def ask_exit(self) -> None:
        """Called by code that wants to end the program."""
        self.exiter()

    def write_payload(self, payload: dict[str, Any]) -> None:
        """Add a payload to the reply; it replaces an earlier one of the same source."""
        if self.payload_manager is not None:
            self.payload_manager.write_payload(payload)

    def set_next_input(self, s: str, replace: bool = False) -> None:
        """%load and %recall: set the next cell of a notebook, else show the text."""
        if self.for_notebook:
            self.write_payload({"source": "set_next_input", "text": s, "replace": bool(replace)})
        else:
            self._show_page(s)

    def _show_page(self, text: Any, start: int = 0, screen_lines: int = 0, pager_cmd: Any = None) -> None:
        data = text if isinstance(text, dict) else {"text/plain": text}
        if self.for_notebook:
            self.write_payload({"source": "page", "data": data, "start": start if isinstance(start, int) else 0})
        else:
            self.display_pub.publish({"text/plain": str(data.get("text/plain", ""))})

    @property
    def for_notebook(self) -> bool:
        """True if a Jupyter front-end reads the output."""
        return self.front == missing.JUPYTER

    # ---------------------------------------------------------------- what libraries ask

    def get_parent(self) -> dict[str, Any]:
        """The request that is served."""
        return self.kernel.get_parent() if self.kernel is not None else {}

    @property
    def parent_header(self) -> dict[str, Any]:
        """The same."""
        return self.get_parent()

    @parent_header.setter
    def parent_header(self, parent: dict[str, Any]) -> None:
        parents.set_parent(parent)

    set_parent = staticmethod(parents.set_parent)
    set_thread_parent = staticmethod(parents.set_thread_parent)
    reset_thread_parent = staticmethod(parents.reset_thread_parent)

    # ---------------------------------------------------------------- errors

    def _as_interrupt(self, value: BaseException, tb: TracebackType | None) -> BaseException:
        """Turn the cancellation of an interrupted wait into KeyboardInterrupt."""
        if self.was_interrupted():
            import asyncio  # takes as long as many modules of IPython

            if isinstance(value, asyncio.CancelledError):
                return KeyboardInterrupt().with_traceback(tb)
        return value

    def _shown_before(self, value: BaseException) -> bool:
        """True for an interrupt while another exception was shown: a cell has one error."""
        last = self.local.error
        context: BaseException | None = value if last and isinstance(value, KeyboardInterrupt) else None
        for _ in range(10):
            if context is None:
                return False
            context = context.__context__
            if last and context is last[0]:
                return True
        return False

    def _format(self, etype: type[BaseException], value: BaseException, tb: Any, tb_offset: int | None) -> list[str]:
        if isinstance(value, UsageError):
            return [f"UsageError: {errors.text_of(value)}"]
        if _has_group(value):  # IPython's formatter does not show them
            return "".join(traceback.format_exception(etype, value, _cell_frames(tb))).splitlines()
        render = getattr(value, "_render_traceback_", None)
        stb = render() if render is not None else None
        if stb is None:
            stb = self.InteractiveTB.structured_traceback(etype, value, tb, tb_offset=tb_offset)
        return list(stb)

    def _format_only(self, etype: type[BaseException], value: BaseException) -> list[str]:
        notice = f" ({EXIT_NOTICE})" if isinstance(value, SystemExit) and not self.for_notebook else ""
        first = "An exception has occurred, use %tb to see the full traceback.\n"
        return [first, f"{errors.name_of(etype)}: {errors.text_of(value)}{notice}\n"]

    def _advice(self, value: BaseException) -> list[str]:
        """About a missing module or key, or a program that failed."""
        try:
            lines = keys.explain(value) or errors.captured(value)
            return lines or missing.explain(value, self.front, self.sandboxed, self.environment)
        except Exception:  # import finders and classes of cells can raise: send the error anyway
            return []

    def _format_for_user(
        self, etype: type[BaseException], value: BaseException, tb: Any, tb_offset: int | None, left_out: int
    ) -> list[str]:
        """The traceback, with all frames after `%xmode Verbose`; brief where no notebook shows it."""
        if self.InteractiveTB.mode == "Verbose":
            frames = self._format(etype, value, tb, tb_offset)
        elif self.for_notebook or self.whole_traceback:
            with errors.user_frames(value, tb) as shown:
                frames = self._format(etype, value, shown, tb_offset)
        else:
            brief = errors.Brief(left_out)
            with brief.without_library_errors(value), errors.user_frames(value, tb, brief.shorten) as shown:
                frames = self._format(etype, value, shown, tb_offset)
            return brief.lines(frames)
        if left_out:
            frames.insert(-1, f"[... {left_out:,} frames in the middle were left out ...]\n")
        return frames

    def showtraceback(
        self,
        exc_tuple: Any = None,
        filename: str | None = None,
        tb_offset: int | None = None,
        exception_only: bool = False,
        running_compiled_code: bool = False,
    ) -> None:
        """Send the current exception as one `error` message, even if its methods raise."""
        try:
            etype, value, tb = self._get_exc_info(exc_tuple)
        except ValueError:
            print("No traceback available to show.", file=sys.stderr)
            return
        if self._shown_before(value):
            return
        value = self._as_interrupt(value, tb)
        etype = type(value)
        if isinstance(value, MemoryError):
            reserve.release()
        try:
            whole = errors.depth_of(tb)
            tb = errors.short_traceback(value, tb)
            if isinstance(value, SyntaxError):
                self.showsyntaxerror(filename, running_compiled_code)
                return
            left_out = whole - errors.depth_of(tb)
            if exception_only:
                frames = self._format_only(etype, value)
            else:
                frames = self._format_for_user(etype, value, tb, tb_offset, left_out)
        except BaseException:
            frames = errors.plain_traceback(etype, value, tb)
        frames.extend(self._advice(value))
        self._showtraceback(etype, value, frames, _denials_of(value))
        if self.call_pdb and not isinstance(value, (UsageError, SystemExit)):
            self.debugger(force=True)

    def _showtraceback(
        self, etype: type[BaseException], evalue: BaseException, stb: list[str], notes: Sequence[str] = ()
    ) -> None:
        compiler: Any = self.compile
        stb = compiler.with_places(stb)
        if _cellgate.forked():
            sys.stderr.write("\n".join(stb) + "\n")
        else:
            content = errors.content(etype, evalue, stb, notes)
            self.local.error = (evalue, content)
            if getattr(self.displayhook, "showing", False):
                self.local.result_error = self.local.error
            _cellgate.publish("error", content)

    def _format_exception_for_storage(self, exception: Any, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
        """Does nothing: formatting it again takes longer than the rest of a failing cell."""
        return {"ename": errors.name_of(type(exception)), "evalue": errors.text_of(exception), "traceback": []}


InteractiveShellABC.register(ZMQInteractiveShell)


def _has_group(value: BaseException | None) -> bool:
    seen = set()
    while value is not None and id(value) not in seen:
        if isinstance(value, BaseExceptionGroup):
            return True
        seen.add(id(value))
        value = value.__cause__ or value.__context__
    return False


def _denials_of(value: BaseException) -> list[str]:
    try:
        return denials.explain(value)
    except BaseException:  # classes of cells can raise: send the error anyway
        return []


def _cell_frames(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of IPython that ran the cell."""
    here = tb
    while here is not None and not debugger.is_cell(here.tb_frame.f_code.co_filename):
        here = here.tb_next
    return here if here is not None else tb


def make(color: bool) -> ZMQInteractiveShell:
    """Make the shell. The history stays in memory, without a thread or database."""
    config = Config()
    config.IPKernelApp.connection_file = ""
    config.HistoryManager.hist_file = ":memory:"
    config.HistoryManager.db_log_output = True  # for history_request
    config.InteractiveShell.colors = "linux" if color else "nocolor"
    warnings.filterwarnings("ignore", message="To exit: use")
    shell: ZMQInteractiveShell = ZMQInteractiveShell.instance(config=config)
    shell.run_sync = lambda func: func()
    shell.was_interrupted = lambda: False
    atexit.register(shell.release_cells)
    return shell


def reply_of(
    shell: ZMQInteractiveShell, result: ExecutionResult | None, values: dict[str, Any] | None = None
) -> tuple[str, str]:
    """Body and content of EXECUTE_REPLY; the content may be empty."""
    error = None
    if result is not None:
        error = result.error_before_exec or result.error_in_exec
    if error is not None:
        error = shell._as_interrupt(error, None)
        shown_before = shell._shown_before(error)
        last, shell.local.error = shell.local.error, None
        if last is not None and shown_before:
            return failed_reply(shell, *last)
        if last is None or last[0] is not error:
            return failed_reply(shell, error, errors.content(type(error), error, []))
        return failed_reply(shell, error, last[1])
    shell.local.error = None
    unshown, shell.local.result_error = shell.local.result_error, None
    if unshown is not None:
        return failed_reply(shell, *unshown)
    count = shell.execution_count
    body = {
        "status": "ok",
        "execution_count": count - 1,
        "next": count,
        "refused": False,
        "commands": started.count() - shell.local.started,
    }
    payload = _take_payload(shell)
    content = jsontext.dumps({"payload": payload, "user_expressions": values or {}}) if payload or values else ""
    return jsontext.dumps(body), content


def failed_reply(shell: ZMQInteractiveShell, error: BaseException, content: str) -> tuple[str, str]:
    """The same for an exception; `content` is that of its `error` message."""
    count = shell.execution_count
    body = {
        "status": "error",
        "execution_count": count - 1,
        "next": count,
        "ename": errors.name_of(type(error)),
        "evalue": json.loads(content)["evalue"] if denials.MARK in content else errors.text_of(error),
        "refused": is_refused(error),
        "commands": started.count() - shell.local.started,
    }
    rest = jsontext.dumps({"payload": _take_payload(shell), "user_expressions": {}})
    return jsontext.dumps(body), f"{content[:-1]},{rest[1:]}"


def _take_payload(shell: ZMQInteractiveShell) -> list[Any]:
    manager: Any = shell.payload_manager
    payload: list[Any] = manager.read_payload() if manager is not None else []
    if payload:
        manager.clear_payload()
    return payload


def is_refused(error: BaseException) -> bool:
    """True if the exception reports a refused approval."""
    if getattr(error, "refused", None) is True:  # of a cell in another language
        return True
    tools = sys.modules.get("cellgate_tools")
    kind = getattr(tools, "RejectedError", None)
    return isinstance(kind, type) and isinstance(error, kind)
