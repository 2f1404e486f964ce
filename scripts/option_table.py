"""Print the options of src/cli/options/NAME.txt as C macros: their ids, and the rows of their struct cg_opt.

option_table.py FILE...    (run by meson; kernel.txt describes such a file)
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

OPTION = re.compile(
    r"(?:-(?P<letter>\w), )?(?:--(?P<name>[\w-]+))?(?: (?![ =]))?(?P<value>.*?)"
    r"(?:  \[(?P<commands>.*)\])?(?: = (?P<id>\w+))?"
)


def help_text(lines: list[str]) -> str:
    return "".join(("\n" if line[3] == "|" else " ") + line[4:] for line in lines)[1:]


def rows(text: str, prefix: str) -> list[tuple[str, str]]:
    """The id of each option, and its row."""
    found = []
    for block in text.split("\n\n")[1:]:
        head, *lines = block.strip("\n").split("\n")
        option = OPTION.fullmatch(head)
        if not option or not lines:
            sys.exit(f"not an option with its help: {head}")
        word = option["id"] or (option["name"] or option["value"]).upper().replace("-", "_")
        letter = f"'{option['letter']}'" if option["letter"] else "0"
        texts = [json.dumps(option[key]) if option[key] else "NULL" for key in ("name", "value")]
        fields = [prefix + word, letter, *texts, option["commands"] or "0", json.dumps(help_text(lines))]
        found.append((fields[0], "{ " + ", ".join(fields) + " }"))
    return found


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        found = rows(path.read_text(encoding="ascii"), "CG_KOPT_" if path.stem == "kernel" else "")
        name = f"CG_{path.stem.upper()}_OPTION"
        first, *others = dict.fromkeys(one for one, _ in found)
        print(f"#define {name}_IDS " + ", ".join([f"{first} = 2", *others]))  # 0 and 1: enum in opts.h
        print(f"#define {name}_ROWS " + ", ".join(row for _, row in found))


if __name__ == "__main__":
    main()
