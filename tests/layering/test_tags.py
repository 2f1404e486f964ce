"""A tag of a struct, union or enum has one meaning: it is defined in one file of src/."""

import re
from collections import defaultdict
from pathlib import Path

DEFINITION = re.compile(
    r"^(?:typedef |static |const )*(?:struct|union|enum) (\w+)(?: __attribute__\S*)? \{", re.MULTILINE
)

# Tags that still have several meanings. No entry is added here: rename the new struct.
KNOWN = {
    *("box", "link", "listener", "named", "part", "rules", "search", "state", "walk"),  # in src/sandbox
    *("cg_http_request", "cg_verdict", "watch"),  # src/sandbox/egress and src/mcp, selftest, supervisor
}


def definitions(src: Path) -> dict[str, set[str]]:
    """Tag to the files that define it."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in src.rglob("*.[ch]"):
        for tag in DEFINITION.findall(file.read_text()):
            found[tag].add(str(file.relative_to(src)))
    return found


def test_one_file_defines_a_tag(repo: Path) -> None:
    found = definitions(repo / "src")
    assert len(found) > 400
    assert {tag: files for tag, files in found.items() if len(files) > 1 and tag not in KNOWN} == {}


def test_what_counts_as_a_definition(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(
        "struct one {\n\tint a;\n};\nstatic const struct two {\n\tint a;\n} v;\nstruct three;\n"
    )
    (tmp_path / "b.h").write_text("enum one {\n\tA,\n};\nstruct two *f(void);\n")
    assert {tag: len(files) for tag, files in definitions(tmp_path).items()} == {"one": 2, "two": 1}
