"""Print the options of src/cli/common/kernel_options.txt, which describes itself, as C macros: their ids, and the rows of
their struct cg_opt.

    option_table.py FILE    (run by meson)
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

OPTION = re.compile(
    r"(?:-(?P<letter>\w), )?(?:--(?P<name>[\w-]+))? ?(?P<value>\S+)?  \[(?P<commands>.*)\](?: = (?P<id>\w+))?"
)


def help_text(lines: list[str]) -> str:
    return "".join(("\n" if line[3] == "|" else " ") + line[4:] for line in lines)[1:]


def rows(text: str) -> list[tuple[str, str]]:
    """The id of each option, and its row."""
    found = []
    for block in text.split("\n\n")[1:]:
        head, *lines = block.strip("\n").split("\n")
        option = OPTION.fullmatch(head)
        if not option:
            sys.exit(f"not an option: {head}")
        word = option["id"] or (option["name"] or option["value"]).upper().replace("-", "_")
        letter = f"'{option['letter']}'" if option["letter"] else "0"
        texts = [json.dumps(option[key]) if option[key] else "NULL" for key in ("name", "value")]
        fields = [f"CG_KOPT_{word}", letter, *texts, option["commands"], json.dumps(help_text(lines))]
        found.append((fields[0], "{ " + ", ".join(fields) + " }"))
    return found


def main() -> None:
    found = rows(Path(sys.argv[1]).read_text(encoding="ascii"))
    print("#define CG_KERNEL_OPTION_IDS " + ", ".join(dict.fromkeys(name for name, _ in found)))
    print("#define CG_KERNEL_OPTION_ROWS " + ", ".join(row for _, row in found))


if __name__ == "__main__":
    main()
