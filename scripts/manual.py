"""Writes the manual pages and the completions for shells, from the commands of src/cli/main.c, their --help and
docs/settings.md.

  scripts/manual.py VERSION OUT CLI FRONT AUDIT NODE    (run by meson, with the built programs)

OUT gets cellgate.1, cellgate-sandbox.1, cellgate-settings.5, cellgate.bash, _cellgate (zsh) and cellgate.fish.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
# Its help needs the Python package, with an SDK that the build does not have.
SANDBOXMCP = (
    "Usage: cellgate sandboxmcp [--server PID] COMMAND ...\n\nCommands for a running server of sandboxmcp's tools.\n"
)


class Program:
    """The help texts of all commands, by their words: "", "run", "mcp", "mcp serve"."""

    def __init__(self, cli: str, front: str, *others: str) -> None:
        # The programs of commands that are not in cellgate-cli, by the functions that start them.
        programs = {Path(program).name.removeprefix("cellgate-"): program for program in others}
        table = (TOP / "src/cli/main.c").read_text().partition("cg_cli_command commands[] = {")[2].partition("\n};")[0]
        self.first: dict[str, str] = {}
        self.help = {"": self._ask(cli, [cli])}
        for name, function, text in re.findall(r'\{ "(\w+)", (\w+),\s+(?:NULL|"(.*)") \}', table):
            if name == "sandboxmcp":
                self.help[name] = SANDBOXMCP
            elif function == "exec_front":
                self.help[name] = self._ask(front, [front, name])
            else:
                own = programs.get(function)
                self.help[name] = self._ask(own or cli, [name] if own else [cli, name])
            # A command without a text in the table: the first sentence of its help.
            sentence = " ".join(self.help[name].split("\n\n")[1].split()).partition(". ")[0].rstrip(".")
            self.first[name] = text or sentence
        for group in ("jupyter", "mcp"):  # their commands have a help of their own
            for name in self.commands(group):
                self.help[f"{group} {name}"] = self._ask(cli, [cli, group, name])

    def _ask(self, program: str, argv: list[str]) -> str:
        argv = [*argv, "--help"]
        return subprocess.run(argv, executable=program, check=True, capture_output=True, text=True).stdout

    def commands(self, group: str) -> dict[str, str]:
        """The commands below this one, and what they do."""
        if not group:
            return self.first
        text = self.help.get(group, "")
        found = dict.fromkeys(re.findall(rf"^(?:Usage:|      ) cellgate {group} ([a-z]+)", text, re.M), "")
        # The help of a command whose usage names no commands may list other words.
        for names, what in found and re.findall(r"^  ([a-z]+(?:, [a-z]+)*)  +(.*)$", text, re.M):
            found.update(dict.fromkeys(names.split(", "), what))
        return found

    def options(self, words: str) -> dict[str, str]:
        """Its long options, and the first line about each; empty for those that only the usage names."""
        text = self.help.get(words) or self.help[words.split()[0]]
        usage = "".join(re.findall(r"^(?:Usage:|      ) cellgate.*$", text, re.M))
        lines = re.findall(r"^ +(?:-\w, )?(--[a-z][a-z-]*)(?:[ =][A-Z\[].*?)?(?:  +(.*))?$", text, re.M)
        return dict.fromkeys(re.findall(r"--[a-z][a-z-]*", usage), "") | {name: what or "" for name, what in lines}

    def all(self) -> list[str]:
        """Every command that a person can type."""
        below = [f"{group} {name}".strip() for group in ("", *self.first) for name in self.commands(group)]
        return sorted({"", *below})


# ---------------------------------------------------------------- manual pages


def escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.split("\n"))


def header(name: str, section: int, version: str, what: str) -> list[str]:
    title = f'.TH {name.upper()} {section} "" "cellgate {version}"'
    return [title, ".SH NAME", f"{escaped(name)} \\- {escaped(what)}"]


def preformatted(lines: list[str]) -> list[str]:
    return [".PP", ".nf", *[escaped(line) for line in lines], ".fi"]


def help_page(text: str) -> list[str]:
    """A help text: what is indented stays as it is."""
    page: list[str] = []
    for block in re.split(r"\n\n+", text.strip("\n")):
        lines = block.split("\n")
        if any(line.startswith(" ") for line in lines):
            page += preformatted(lines)
        else:
            page += [".PP", escaped(block)]
    return page


def manual(program: Program, version: str) -> str:
    page = header("cellgate", 1, version, "run Python of agents in a sandboxed kernel; approve every tool call")
    page += [".SH DESCRIPTION", *help_page(program.help[""])]
    for words, text in sorted(program.help.items()):
        if words and words != "sandbox":
            page += [f'.SH "CELLGATE {words.upper()}"', *help_page(text)]
    return "\n".join([*page, ".SH SEE ALSO", "cellgate\\-sandbox(1), cellgate\\-settings(5)", ""])


def sandbox_manual(program: Program, version: str) -> str:
    page = header("cellgate-sandbox", 1, version, "run any command in a sandbox")
    page += [".SH DESCRIPTION", *help_page(program.help["sandbox"])]
    return "\n".join([*page, ".SH SEE ALSO", "cellgate(1), cellgate\\-settings(5)", ""])


def inline(text: str) -> str:
    """A line of Markdown."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("\\|", "|")
    parts = re.split(r"(`[^`]*`|\*\*[^*]*\*\*)", text)
    return "".join(
        f"\\fB{escaped(p.strip('`*'))}\\fR" if p[:1] in ("`", "*") and len(p) > 2 else escaped(p) for p in parts
    )


def markdown_page(text: str) -> list[str]:
    page: list[str] = []
    fence = table = False
    for line in text.splitlines():
        if line.startswith("```"):
            fence = not fence
            page += [".PP", ".nf"] if fence else [".fi"]
        elif fence:
            page.append(escaped(line))
        elif line.startswith("|"):
            cells = [inline(c.strip()) for c in re.split(r"(?<!\\)\|", line)[1:-1]]
            if table and not set(line) <= set("|-: "):
                page += [".TP", cells[0] or "\\&", "; ".join(c for c in cells[1:] if c) or "\\&"]
        elif line.startswith("#"):
            level, _, title = line.partition(" ")
            page.append(f'.{"SH" if len(level) == 2 else "SS"} "{inline(title)}"')
        elif line.startswith("- "):
            page += [".IP \\(bu 2", inline(line[2:])]
        elif line.strip():
            page.append(inline(line.strip()))
        else:
            page.append(".PP")
        table = line.startswith("|")
    return page


def settings_manual(text: str, version: str) -> str:
    _, _, body = text.partition("\n")  # without the title
    body = re.sub(r"(?:^- \[.*\]\(#.*\)\n)+", "", body, flags=re.M)  # and the contents
    page = header("cellgate-settings", 5, version, "settings of sandboxes")
    return "\n".join(
        [*page, ".SH DESCRIPTION", *markdown_page(body), ".SH SEE ALSO", "cellgate(1), cellgate\\-sandbox(1)", ""]
    )


# ---------------------------------------------------------------- completions


def bash(program: Program) -> str:
    known = "|".join(f'" {words}"' for words in program.all() if words)
    cases = []
    for words in program.all():
        names = [*program.commands(words), *program.options(words)]
        cases.append(f'        "{" " + words if words else ""}") words="{" ".join(names)}" ;;')
    groups = "|".join(f'"{" " + g if g else ""}"' for g in ("", *program.first) if program.commands(g))
    return f"""# bash completion for cellgate
_cellgate() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} at="" words i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${{COMP_WORDS[i]}}" in
        {known}) at="$at ${{COMP_WORDS[i]}}" ;;
        esac
    done
    case $at in
{chr(10).join(cases)}
    esac
    COMPREPLY=()
    case $at in
    {groups}) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur") ;;
    *) [[ $cur != -* ]] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur") ;;
    esac
}}
complete -o default -F _cellgate cellgate
"""


def zsh(program: Program) -> str:
    known = "|".join(f'" {words}"' for words in program.all() if words)
    cases = []
    for words in program.all():
        pairs = {**program.commands(words), **program.options(words)}
        items = " ".join(shlex.quote(f"{name}:{what}") for name, what in pairs.items())
        cases.append(f'    "{" " + words if words else ""}") items=({items}) ;;')
    return f"""#compdef cellgate
local at="" w
local -a items
for w in ${{words[2,CURRENT-1]}}; do
    case "$at $w" in
    {known}) at="$at $w" ;;
    esac
done
case $at in
{chr(10).join(cases)}
esac
_describe cellgate items || _files
_files
"""


def fish(program: Program) -> str:
    lines = [
        "# fish completion for cellgate",
        "function __cellgate_at",
        "    set -l words (commandline -opc)[2..-1]",
        "    set -l names (string match -rv '^-' -- $words)",
        '    test (string join " " -- $names[1..(count (string split " " -- $argv[1]))]) = "$argv[1]"',
        "end",
    ]
    for words in program.all():
        at = f"__cellgate_at {shlex.quote(words)}" if words else "__fish_use_subcommand"
        for name, what in program.commands(words).items():
            lines.append(f"complete -c cellgate -n {shlex.quote(at)} -a {name} -d {shlex.quote(what)}")
        for name, what in program.options(words).items():
            lines.append(f"complete -c cellgate -n {shlex.quote(at)} -l {name[2:]} -d {shlex.quote(what)}")
    return "\n".join([*lines, ""])


def main() -> int:
    version, out = sys.argv[1], Path(sys.argv[2])
    program = Program(*sys.argv[3:])
    for name, text in (
        ("cellgate.1", manual(program, version)),
        ("cellgate-sandbox.1", sandbox_manual(program, version)),
        ("cellgate-settings.5", settings_manual((TOP / "docs/settings.md").read_text(), version)),
        ("cellgate.bash", bash(program)),
        ("_cellgate", zsh(program)),
        ("cellgate.fish", fish(program)),
    ):
        (out / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
