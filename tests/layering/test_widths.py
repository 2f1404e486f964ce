"""Comment lines of C have at most 100 columns, other lines at most 110, but for string literals."""

import re
from pathlib import Path

COMMENT = re.compile(r"^\s*(/\*| \*|\*)")
GENERATED = "src/base/text_table.h"


def test_lines_of_c(repo: Path) -> None:
    files = [f for d in ("src", "include", "tests", "examples", "bench") for f in sorted((repo / d).rglob("*.[ch]"))]
    assert len(files) > 300
    wrong = []
    for file in files:
        name = str(file.relative_to(repo))
        if name == GENERATED:
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            text = line.expandtabs(8)
            is_comment = COMMENT.match(line) and not re.match(r"^\s*\*\w", line)
            if len(text) > (100 if is_comment else 110) and '"' not in line:
                wrong.append(f"{name}:{number}: {len(text)} columns")
    assert wrong == []
