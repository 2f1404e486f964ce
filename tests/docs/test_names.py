"""docs/names.md has the names of src/sandbox/names/names.c, and says who obeys each."""

import re
from pathlib import Path

WORDS = {
    "W": "never written",
    "H": "hidden",
    "WH": "both",
    "B": "hidden in the workspace",
    "HB": "hidden, and in the workspace",
}
ROW = re.compile(r'\b([WHB]+)\("([^"]+)"\)')
DOC_ROW = re.compile(r"^\| (`.*`) \| (.*) \| (.*) \|$", re.M)


def test_the_tables_are_the_same(repo: Path) -> None:
    source = (repo / "src/sandbox/names/names.c").read_text()
    table = source[source.index("table[] = {") : source.index("const struct cg_name *cg_names(")]
    page = (repo / "docs/names.md").read_text()
    code = {(name, WORDS[what]) for what, name in ROW.findall(table)}
    assert len(code) > 500
    assert len(code) == len(ROW.findall(table)), "the table has a row twice"
    documented = {
        (name, what) for names, by, what in DOC_ROW.findall(page) if by for name in re.findall(r"`([^`]+)`", names)
    }
    assert documented == code
