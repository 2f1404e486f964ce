"""docs/names.md has the table of src/sandbox/names/names.c, row by row."""

import re
from pathlib import Path

WORDS = {
    "W": "never written",
    "H": "hidden",
    "W|H": "both",
    "B": "hidden in the workspace",
    "H|B": "hidden, and in the workspace",
}
ROW = re.compile(r'\{ "([^"]+)", "([^"]+)", ([WHB |]+) \}')
DOC_ROW = re.compile(r"^\| (`.*`) \| (.*) \| (.*) \|$", re.M)


def test_the_tables_are_the_same(repo: Path) -> None:
    source = (repo / "src/sandbox/names/names.c").read_text()
    table = source[source.index("table[] = {") : source.index("const struct cg_name *cg_names(")]
    page = (repo / "docs/names.md").read_text()
    code = {(name, by, WORDS[what.replace(" ", "")]) for name, by, what in ROW.findall(table)}
    assert len(code) > 200
    assert len(code) == len(ROW.findall(table)), "the table has a row twice"
    documented = {
        (name, by, what) for names, by, what in DOC_ROW.findall(page) for name in re.findall(r"`([^`]+)`", names)
    }
    assert documented == code
