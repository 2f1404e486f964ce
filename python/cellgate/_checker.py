"""The program that cellgate.validate starts in a sandbox: checks code and never runs it.

Reads one JSON object from standard input, made by _steps() in validate.py, and writes the result to standard output.
Imports the standard library, and IPython where plain Python cannot read the code.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

from cellgate._imports import permitted

ALIASES = {
    "mpl": "matplotlib",
    "np": "numpy",
    "nx": "networkx",
    "pa": "pyarrow",
    "pd": "pandas",
    "pl": "polars",
    "plt": "matplotlib.pyplot",
    "px": "plotly.express",
    "sns": "seaborn",
    "tf": "tensorflow",
    "xr": "xarray",
}
MEMBERS = {
    "collections": ("ChainMap", "Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"),
    "dataclasses": ("dataclass",),
    "datetime": ("timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "functools": ("lru_cache", "partial", "reduce"),
    "pathlib": ("Path",),
}
CLASS_METHODS = frozenset({"now", "today", "utcnow", "strptime", "fromisoformat", "fromtimestamp", "combine"})
IPYTHON = re.compile(r"In|Out|get_ipython|display|exit|quit|_+|_i+|_[io]h|_dh|_i?\d+|__\w+__")
URL = re.compile(r"\b(?:https?|ftp|wss?)://(?:[^\s/@'\"]*@)?(\[[0-9a-fA-F:.]+\]|[\w.-]+)")
WORD = re.compile(r"\s*([\w./+-]+)(?:\s|$)")
SHELL_WORDS = re.compile(r"cd|echo|export|set|unset|source|test|true|false|if|for|while|case|until|exec|eval|\.|\[")
# Blanks and comments, what separates, and words with their quotes.
SHELL_TOKEN = re.compile(
    r"""((?<![^\s;|&()])\#[^\n]*|[ \t\r]+|\\\n)|([;|&\n()<>]+)|((?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s;|&()<>'"\\])+)""",
    re.S,
)
BEFORE_COMMANDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "time"})
NODE_MODULE = (
    r"(?m)(?:\brequire\s*\(|\bimport\s*\(|\bfrom|^[ \t]*import)\s*"
    r"""['"]((?:@[\w.-]{1,200}/)?[a-zA-Z][\w.-]{0,200})['"/]"""
)
NODE_MISSING = """const m = require("module"), found = (n) => {
  try { return m.isBuiltin(n) || require.resolve(n, { paths: [process.cwd()] }); }
  catch (e) { return e.code !== "MODULE_NOT_FOUND"; }
};
console.log(process.argv.slice(1).filter((n) => !found(n)).join(" "));"""
SUBPROCESS = frozenset({"run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"})
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.IfExp, ast.comprehension, ast.BoolOp)
LOCAL = ["", "/run/cellgate/lib"]
ISSUES_MAX = 1000
"""Of each severity."""
# The option `dangers` warns about these.
NAMES = {
    "exec": "exec() runs text as code",
    "eval": "eval() runs text as code",
    "compile": "compile() makes code of text",
    "__import__": "__import__() imports a module by a computed name",
    "__builtins__": "__builtins__ is used, which is how exec and eval are reached by obfuscation",
}
CALLS = {
    "os.system": "starts a shell",
    "os.popen": "starts a shell",
    "os.remove": "removes a file",
    "os.unlink": "removes a file",
    "shutil.rmtree": "removes a folder with all that it contains",
}
MODULES = {"ctypes": "native code", "pickle": "runs code of the data that it loads", "socket": "the network"}
SYSTEM_FILES = ("/etc/passwd", "/etc/shadow", "/etc/sudoers")
# No pattern reads far from where it begins: code may be a line of a million words.
SHELL_PATTERNS = (
    (r"\bcurl\b[^|\n]{0,500}\|\s{0,20}(?:ba|z|da)?sh\b", "piping curl to shell"),
    (r"\bwget\b[^|\n]{0,500}\|\s{0,20}(?:ba|z|da)?sh\b", "piping wget to shell"),
    (r"\b(?:ba)?sh\s+-c\b", "sh -c runs text as code"),
    (r"\bnc\b(?:\s+-\w+)*\s+-\w*[le]", "netcat listener"),
    (r"\brm\s+-(?:rf|fr)\s+/", "rm -rf of an absolute path"),
    (r"\bchown\s+-R\b", "recursive chown"),
    (r"\bchmod\s+(?:-R\s+)?777\b", "chmod 777"),
    (r">\s*/dev/(?:sd|hd|nvme|vd)", "writing to raw device"),
    (r"\bdd\s.{0,500}\bof=/dev/", "dd to a device"),
    (r"\bmkfs\b", "mkfs makes a file system"),
    (r"\bkill\s+-9\s+-1\b", "kill all processes"),
    (r"\bcrontab\s+-r\b", "crontab removal"),
    (r"(\S{1,64})\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}\s*;\s*\1", "fork bomb"),
)
NODE_PATTERNS = (
    (r"\beval\s*\(", "eval() runs text as code"),
    (r"\bnew\s+Function\s*\(", "Function() constructor runs text as code"),
    (r"\brequire\s*\(\s*['\"](?:node:)?child_process['\"]", "require('child_process') starts programs"),
    (r"\bprocess\.exit\b", "process.exit ends the program"),
    (r"\bfs\.unlink(?:Sync)?\s*\(", "fs.unlinkSync() removes a file"),
    (r"\bfs\.(?:rmdir|rm)(?:Sync)?\s*\(", "fs.rmdirSync() removes a folder"),
    (r"\bsetTimeout\s*\(\s*['\"]", "setTimeout with string argument"),
    (r"\bsetInterval\s*\(\s*['\"]", "setInterval with string argument"),
)

Issue = dict[str, Any]
which = cache(shutil.which)


class Check:
    """One piece of code, and what was found."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.code: str = request["code"]
        self.allowed: list[str] | None = request.get("allowed_imports")
        self.hosts: list[str] | None = request.get("hosts")
        self.exec: str = request.get("exec", "allow")
        self.names = frozenset(request.get("names", ()))
        self.dangers: bool = request.get("dangers", False)
        self.issues: list[Issue] = []
        self.found: Counter[str] = Counter()
        """Issues by severity, also those that are not listed."""
        self.lines = self.code.count("\n") + 1
        self.imports: list[str] = []
        self.fixes: dict[str, list[str]] = {}
        """Import statements by the name that they define."""
        self.complexity = "low"

    def add(self, rule: str, message: str, line: int = 1, col: int = 0, severity: str = "warning") -> None:
        self.found[severity] += 1
        if self.found[severity] > ISSUES_MAX:
            return
        if self.found[severity] == ISSUES_MAX:
            rule, message = "more", f"{severity}: only the first {ISSUES_MAX - 1} are listed"
        line = max(1, min(line, self.lines))  # bash names the end as a line of its own
        self.issues.append({"line": line, "col": col + 1, "message": message, "severity": severity, "rule": rule})

    def at(self, node: ast.AST, rule: str, message: str, severity: str = "warning") -> None:
        self.add(rule, message, getattr(node, "lineno", 1), getattr(node, "col_offset", 0), severity)

    def result(self) -> dict[str, Any]:
        lines = self.code.count("\n") + (not self.code.endswith("\n") and bool(self.code))
        size = {"line_count": lines, "character_count": len(self.code), "estimated_complexity": self.complexity}
        self.issues.sort(key=lambda issue: (issue["line"], issue["col"]))
        return {"issues": self.issues, "fixes": self.fixes, "analysis": {**size, "imports": sorted(set(self.imports))}}

    # ------------------------------------------------------------ Python

    def python(self) -> None:
        first, _, body = self.code.partition("\n")
        magic = re.match(r"%%(\w+)", first)
        if magic and magic[1] in ("bash", "sh"):
            self.shell(body, 1)
        elif magic and magic[1] in ("time", "timeit", "capture", "prun"):
            self._tree("\n" + body)
        elif not magic:
            self._tree(self.code)

    def _tree(self, code: str) -> None:
        if tree := self._parse(code):
            self._imports(tree)
            self._names(tree)
            for node in ast.walk(tree):
                self._use(node)
                if self.dangers:
                    for text in danger(node):
                        self.at(node, "danger", text)
            branches = sum(isinstance(node, BRANCHES) for node in ast.walk(tree))
            self.complexity = "low" if branches <= 10 else "medium" if branches <= 50 else "high"

    def _parse(self, code: str) -> ast.Module | None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                tree = parsed(code)
            except SyntaxError as plain:
                try:
                    tree = parsed(as_ipython(code))
                except SyntaxError as e:
                    if (e.lineno or 0) > code.count("\n") + 1:  # of a line that IPython has made
                        e = plain
                    message = f"Syntax error: {e.msg}"
                    self.add("syntax", message, e.lineno or 1, max(0, (e.offset or 1) - 1), "error")
                    return None
            except (ValueError, RecursionError, MemoryError, OverflowError) as e:
                self.add("syntax", f"Python cannot read the code: {e or type(e).__name__}", severity="error")
                return None
        for warning in caught:
            self.add("syntax-warning", str(warning.message), warning.lineno)
        return tree

    def _imports(self, tree: ast.Module) -> None:
        optional = {
            id(n)
            for t in ast.walk(tree)
            if isinstance(t, ast.Try) and any(catches_import(h) for h in t.handlers)
            for s in t.body
            for n in ast.walk(s)
        }
        for node in ast.walk(tree):
            for module, members in imported(node):
                self.imports.append(module)
                if module in ("__future__", "__main__") or module.partition(".")[0] in ("mcptools", "cellgate_tools"):
                    continue
                if not permitted(module, members, self.allowed):
                    self.at(node, "import-not-allowed", f"Import '{module}' is not allowed", "error")
                elif id(node) not in optional and not present(module, local=True):
                    top = module.partition(".")[0]
                    how = f"if the package {top} is meant, `cellgate env add ENV {top}` adds it to the environment"
                    if top in sys.stdlib_module_names:
                        how = "it is a part of Python that this system does not have"
                    self.at(node, "module-missing", f"there is no module {top} in the kernel's environment; {how}")

    def _names(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        if any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in nodes):
            return
        known = {name for n in nodes for name in bound(n)} | self.names | set(dir(builtins))
        chains: dict[str, list[list[str]]] = {}
        first: dict[str, ast.Name] = {}
        inner = {id(n.value) for n in nodes if isinstance(n, ast.Attribute)}
        for n in nodes:
            if isinstance(n, (ast.Attribute, ast.Name)) and id(n) not in inner and (chain := dotted(n)):
                (name, *use), node = chain
                if name not in known and not IPYTHON.fullmatch(name):
                    chains.setdefault(name, []).append(use)
                    first.setdefault(name, node)
        for name, uses in chains.items():
            if self.found["info"] > ISSUES_MAX:
                break
            statements = [s for s in imports_for(name, uses) if self._may_import(s)]
            if statements:
                self.fixes[name] = statements
                self.at(first[name], "missing-import", f"{name} is not imported: {'; '.join(statements)}")
            else:
                self.at(first[name], "undefined-name", f"{name} is not defined in this code", "info")

    def _may_import(self, statement: str) -> bool:
        (node,) = ast.parse(statement).body
        return all(permitted(module, members, self.allowed) for module, members in imported(node))

    def _use(self, node: ast.AST) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.urls(node.value, node.lineno, node.col_offset)
        if not isinstance(node, ast.Call):
            return
        names = (dotted(node.func) or ([""], node))[0]
        text = node.args[0] if node.args else None
        if isinstance(text, ast.List) and text.elts:
            text = text.elts[0]
        if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
            return
        member = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if member in ("system", "popen", "getoutput") or (names[0] == "subprocess" and member in SUBPROCESS):
            word = WORD.match(text.value)
            name = "" if not word or SHELL_WORDS.fullmatch(word[1]) else word[1]
            self._program(name, node.lineno, node.col_offset)
        elif names == ["open"]:
            self._file(node, text.value)

    def _program(self, name: str, line: int, col: int) -> None:
        if self.exec in ("deny", "ask"):
            what = "are refused" if self.exec == "deny" else "wait for an approval"
            self.add("program", f"programs that cells start {what} (exec: {self.exec})", line, col)
        elif name and not which(name):
            self.add("program", f"there is no program {name} in the sandbox", line, col)

    def _file(self, node: ast.Call, name: str) -> None:
        mode = [k.value for k in node.keywords if k.arg == "mode"] + node.args[1:2]
        writes = any(isinstance(m, ast.Constant) and set(str(m.value)) & set("wax+") for m in mode)
        if "\0" in name:
            return
        path = os.path.abspath(os.path.expanduser(name))
        if writes and not os.access(path if os.path.exists(path) else os.path.dirname(path), os.W_OK):
            self.at(node, "path", f"the sandbox does not let code write {path}, or its folder is not there")
        elif not writes and os.path.isabs(os.path.expanduser(name)) and not os.access(path, os.R_OK):
            self.at(node, "path", f"{path} cannot be read here: it is absent, or the sandbox hides it")

    # ------------------------------------------------------------ all languages

    def urls(self, text: str, line: int, col: int) -> None:
        """Hosts that the sandbox will refuse, as far as that is known."""
        for at, match in numbered(URL, text, line):
            host = match[1].lower()
            if self.hosts == [] or (self.hosts is None and "HTTPS_PROXY" not in os.environ):
                self.add("host", f"{host}: the sandbox has no network", at, col)
            elif self.hosts is not None and not any(host_matches(host, entry) for entry in self.hosts):
                self.add("host", f"{host} is not among the allowed hosts: {', '.join(self.hosts)}", at, col)

    def patterns(self, known: tuple[tuple[str, str], ...], code: str, offset: int = 0) -> None:
        for pattern, text in known if self.dangers else ():
            for line in dict.fromkeys(line for line, _ in numbered(pattern, code, 1 + offset)):
                self.add("danger", text, line)

    def shell(self, code: str, offset: int = 0) -> None:
        """bash reads it without running anything (-n)."""
        p = subprocess.run(["bash", "--norc", "-n"], input=code, capture_output=True, text=True, errors="replace")
        for line, message in re.findall(r"^bash: line (\d+): ([^`].*)$", p.stderr, re.M):
            self.add("syntax", message.capitalize(), int(line) + offset, severity="error")
        if p.returncode and not self.issues:
            self.add("syntax", p.stderr.strip() or f"bash -n: exit status {p.returncode}", severity="error")
        self.patterns(SHELL_PATTERNS, code, offset)
        self.urls(code, 1 + offset, 0)
        self._shell_programs(code, offset)

    def _shell_programs(self, code: str, offset: int) -> None:
        """Names of commands, outside of parentheses and up to a here-document, `case`, or a file with functions."""
        if "PATH=" in code:
            return
        p = subprocess.run(["bash", "--norc", "-c", "compgen -bk"], capture_output=True, text=True)
        defined = re.findall(r"(?<![\w-])[\w-]+(?=\s*\(\))|(?<=function )[\w-]+|(?<=alias )[\w-]+", code)
        known = {*p.stdout.split(), *self.names, *defined}
        line, begin, depth, first, test = 1, 0, 0, True, False
        for found in SHELL_TOKEN.finditer(code):
            _, separator, word = found.groups()
            if separator:
                depth = max(0, depth + separator.count("(") - separator.count(")"))
                first = not set(separator) & set("<>()")
                if "<<" in separator:
                    return
            elif word and first and not depth and not test and not re.match(r"\w+(\[.*?\])?\+?=", word):
                if word in (".", "source", "eval", "exec", "case"):
                    return
                first, test = word in BEFORE_COMMANDS, word == "[["
                if re.fullmatch(r"[\w.+-]+", word) and word not in known and not code.startswith(")", found.end()):
                    self._program(word, line + offset, found.start() - begin)
            elif word == "]]":
                test = False
            if lines := found[0].count("\n"):
                line, begin = line + lines, found.start() + found[0].rindex("\n") + 1

    def node(self) -> None:
        """node --check, as a script or else as a module."""
        with tempfile.TemporaryDirectory() as folder:
            for ending in ("cjs", "mjs"):
                path = os.path.join(folder, f"code.{ending}")
                with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
                    file.write(self.code)
                p = subprocess.run(["node", "--check", path], capture_output=True, text=True, errors="replace")
                if p.returncode == 0:
                    break
            else:
                where = re.search(r"^\S*code\.mjs:(\d+)", p.stderr, re.M)
                message = re.search(r"^\w*Error.*$", p.stderr, re.M)
                text = message[0] if message else f"node --check: exit status {p.returncode}"
                self.add("syntax", text, int(where[1]) if where else 1, severity="error")
        self.patterns(NODE_PATTERNS, self.code)
        self.urls(self.code, 1, 0)
        used: dict[str, int] = {}
        for line, match in numbered(NODE_MODULE, self.code, 1):
            if match[1] != "mcptools":
                used.setdefault(match[1], line)
        p = subprocess.run(["node", "-e", NODE_MISSING, "--", *list(used)[:ISSUES_MAX]], capture_output=True, text=True)
        for name in p.stdout.split():
            text = f"there is no module {name}: `npm install {name}` in the workspace, or install_package, adds it"
            self.add("module-missing", text, used.get(name, 1))


# ---------------------------------------------------------------- Python code


def parsed(code: str) -> ast.Module:
    """compile() finds what the parser alone does not: `return` outside of a function."""
    compile(code, "<code>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return ast.parse(code)


def as_ipython(code: str) -> str:
    """Plain Python for magics, `!`, `?` and prompts."""
    transformer = importlib.import_module("IPython.core.inputtransformer2")
    return str(transformer.TransformerManager().transform_cell(code))


def imported(node: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Modules that a statement or a call imports by a constant name, with the names that are taken from them."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, []) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield node.module, [alias.name for alias in node.names]
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        name, value = (dotted(node.func) or ([""], node))[0][-1], node.args[0].value
        if name in ("__import__", "import_module") and isinstance(value, str) and value and value[0] != ".":
            yield value, []


@cache
def present(module: str, local: bool) -> bool:
    """Whether the environment (`local`: or the current folder) has the module's package. Imports nothing."""
    top = module.partition(".")[0]
    path = [*sys.path, *(LOCAL if local else [])]
    return top in sys.builtin_module_names or PathFinder.find_spec(top, path) is not None


def numbered(pattern: str | re.Pattern[str], text: str, line: int) -> Iterator[tuple[int, re.Match[str]]]:
    """Matches in a text that begins in this line, with the line of each."""
    counted = 0
    for match in re.finditer(pattern, text):
        line, counted = line + text.count("\n", counted, match.start()), match.start()
        yield line, match


def danger(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and node.id in NAMES:
        yield NAMES[node.id]
    elif isinstance(node, ast.Import):
        yield from (f"{a.name}: {MODULES[a.name]}" for a in node.names if a.name in MODULES)
    elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
        yield f"{node.module}: {MODULES[node.module]}"
    elif isinstance(node, ast.Call):
        name = ".".join((dotted(node.func) or ([], node))[0])
        if name in CALLS:
            yield f"{name}() {CALLS[name]}"
        if any(k.arg == "shell" and isinstance(k.value, ast.Constant) and k.value.value is True for k in node.keywords):
            yield f"{name}() with shell=True starts a shell"
    elif isinstance(node, ast.Constant) and node.value in SYSTEM_FILES:
        yield f"{node.value}: system files"


def catches_import(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {k.id for k in kinds if isinstance(k, ast.Name)}
    return handler.type is None or bool(names & {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def dotted(node: ast.AST) -> tuple[list[str], ast.Name] | None:
    """The names of a chain such as `a.b.c`, and its first node."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
        return None
    return [node.id, *reversed(names)], node


def bound(node: ast.AST) -> Iterator[str]:
    """Names that a node defines, in whatever scope."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        yield from node.names
    else:
        # Names of functions, classes, handlers, patterns, type parameters.
        yield from (v for f in ("name", "rest") if isinstance(v := getattr(node, f, None), str))


def imports_for(name: str, uses: list[list[str]]) -> list[str]:
    """Statements that define a name as everybody means it, or none. A module is meant where all uses are NAME.x."""
    for module, members in MEMBERS.items():
        if name in members:
            return [f"from {module} import {name}"]
    if name == "datetime" and all(use and use[0] in CLASS_METHODS for use in uses):
        return ["from datetime import datetime"]
    module = ALIASES.get(name, name)
    if name.startswith("_") or not all(uses) or not present(module, local=False):
        return []
    if module != name:
        return [f"import {module} as {name}"]
    return sorted({f"import {deepest(name, use)}" for use in uses})


def deepest(name: str, use: list[str]) -> str:
    """The module that a chain reaches into: `xml.etree.ElementTree` of `xml.etree.ElementTree.parse`."""
    spec = PathFinder.find_spec(name, sys.path)
    for member in use:
        folders = spec.submodule_search_locations if spec else None
        if not folders or not (spec := PathFinder.find_spec(f"{name}.{member}", list(folders))):
            break
        name += f".{member}"
    return name


def with_imports(code: str, statements: list[str]) -> str | None:
    """The code with these imports after docstring and `from __future__`. None: there is no place that is right."""
    try:
        tree = parsed(code)
    except SyntaxError:
        try:
            tree = parsed(plain := as_ipython(code))
        except SyntaxError:
            return None
        if code.startswith("%%") or plain.count("\n") != code.count("\n") + (not code.endswith("\n")):
            return None
    last = None
    for i, node in enumerate(tree.body):
        docstring = i == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__")):
            break
        last = node
    lines = io.StringIO(code, newline="").readlines()  # as Python counts them
    at = (last.end_lineno or 0) if last else next((i for i, line in enumerate(lines) if not comment(line)), 0)
    after = tree.body[tree.body.index(last) + 1] if last and tree.body[-1] is not last else None
    if after and last and after.lineno == last.end_lineno:
        data = lines[at - 1].encode()
        lines[at - 1] = (data[: after.col_offset] + "; ".join(statements).encode() + b"; ").decode() + (
            data[after.col_offset :].decode()
        )
        return "".join(lines)
    if at and not lines[at - 1].endswith("\n"):
        lines[at - 1] += "\n"
    lines[at:at] = [f"{statement}\n" for statement in statements]
    return "".join(lines)


def comment(line: str) -> bool:
    """A line at the top that stays there: `#!`, the encoding, a licence."""
    return line.startswith("#")


def same_but_imports(code: str, fixed: str, statements: list[str]) -> bool:
    """Whether the fixed code is the code with exactly these statements more."""

    def body(text: str) -> list[str]:
        try:
            return [ast.dump(n) for n in parsed(text).body]
        except SyntaxError:
            return [ast.dump(n) for n in parsed(as_ipython(text)).body]

    more = [ast.dump(n) for s in statements for n in ast.parse(s).body]
    before, after = body(code), body(fixed)
    at = next((i for i in range(len(before) + 1) if after[i : i + len(more)] == more), None)
    return at is not None and after[:at] + after[at + len(more) :] == before


def host_matches(host: str, entry: str) -> bool:
    entry = re.sub(r":\d+$", "", entry.lower())
    return host.endswith(entry[1:]) if entry.startswith("*.") else host == entry


def main() -> None:
    request = json.load(sys.stdin)
    check = Check(request)
    if request["language"] == "python":
        check.python()
    elif request["language"] == "node":
        check.node()
    else:
        check.shell(check.code)
    result = check.result()
    statements = [s for more in check.fixes.values() for s in more]
    errors = any(issue["severity"] == "error" for issue in check.issues)
    fixed = with_imports(check.code, statements) if statements and not errors else None
    if fixed is not None and same_but_imports(check.code, fixed, statements):
        result["fixed_code"] = fixed
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
