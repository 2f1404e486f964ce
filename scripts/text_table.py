#!/usr/bin/env python3
"""Generate src/base/text_table.h, the character classes that src/base/text.c uses.

    text_table.py            writes the table to standard output

Sources: the Unicode character database (PyPI packages unicodedata2 and fonttools) and Unicode's
list of confusable characters (confusable-homoglyphs), as pinned in tests/requirements.txt.
"""

import json
import sys
from pathlib import Path

import confusable_homoglyphs
import unicodedata2 as ucd
from fontTools.unicodedata import script

# Classes, as in text.c. A letter's class is the number of its script, plus LOOKALIKE if the letter
# can be confused with an ASCII character.
PLAIN, HIDDEN, JUDGED, MARK, LETTER = 0, 1, 2, 3, 4
LATIN, CJK, FIRST_SCRIPT = 5, 6, 7
LOOKALIKE = 0x400
CLASS_BITS = 11

# Scripts that are normally mixed in one word.
CJK_SCRIPTS = {"Hani", "Hira", "Kana", "Bopo", "Hang", "Hrkt"}
# ASCII characters that a symbol must not be confused with: letters, digits, and separators in paths
# and addresses. A letter must not be confused with any of ASCII.
TARGETS = [chr(c) for c in range(0x30, 0x7B) if chr(c).isalnum()] + list("/\\.:@")
ASCII = [chr(c) for c in range(0x21, 0x7F)]
# Confusable characters of normal text: dotless i (Turkish), multiplication sign, long vowel mark
# (Japanese), Cyrillic be and ghe (otherwise many Russian words consist of look-alikes only).
EVERYDAY = {0x131, 0xD7, 0x30FC, 0x431, 0x433}
# Invisible characters that have no category of their own.
BLANK = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0xFFFC}
# Slashes, dots and colons that the list of look-alikes lacks.
MORE_LOOKALIKES = {0x2024, 0x2044, 0x2215, 0x2216, 0x2236, 0x29F5, 0x29F8, 0xA789, 0xFE52, 0xFE55, 0xFE68}


def is_letter(category: str) -> bool:
    """Part of a word."""
    return category[0] == "L" or category == "Nl"


def lookalikes() -> set[int]:
    """Characters that look like one of TARGETS, and letters that look like any ASCII character."""
    path = Path(confusable_homoglyphs.__file__).with_name("confusables.json")
    table = json.loads(path.read_text(encoding="utf-8"))
    found = {
        ord(entry["c"])
        for target in ASCII
        for entry in table.get(target, [])
        if len(entry["c"]) == 1 and (target in TARGETS or is_letter(ucd.category(entry["c"])))
    }
    return {c for c in found | MORE_LOOKALIKES if c >= 0x80} - EVERYDAY


def same_as_ascii(c: int) -> bool:
    """A full-width, mathematical or canonically equivalent variant of an ASCII character."""
    kind, _, value = ucd.decomposition(chr(c)).rpartition("> ")
    to = ucd.normalize("NFKC", chr(c))
    return len(to) == 1 and to.isascii() and bool(value) and kind in ("", "<font", "<wide", "<narrow")


def is_hidden(c: int, category: str) -> bool:
    """Escaped in all text: control, format and private-use characters, line separators."""
    if c in (0x09, 0x0A):
        return False
    return (
        category in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        or c in BLANK
        or 0x180B <= c <= 0x180F
        or 0xFE00 <= c <= 0xFE0F
        or 0xFFF0 <= c <= 0xFFFF
        or (c & 0xFFFE) == 0xFFFE
        or c >= 0x40000
    )


def is_judged(c: int, category: str, likes: set[int]) -> bool:
    """Escaped only in text on which a decision is based."""
    if c in (0x09, 0x0A, 0x20):
        return False
    return (
        category in ("Cn", "Zs", "Me")
        or ucd.bidirectional(chr(c)) in ("R", "AL", "AN")
        or ucd.combining(chr(c)) == 1  # overlays: strike through their base
        or same_as_ascii(c)
        or (
            c in likes
            and category not in ("Mn", "Mc", "Pd", "Pi", "Pf")
            and (not is_letter(category) or script(chr(c)) in ("Latn", "Zyyy"))
        )
    )


def classes() -> list[int]:
    """The class of every code point."""
    likes, ids = lookalikes(), {"Latn": LATIN} | {s: CJK for s in CJK_SCRIPTS}
    table = []
    for c in range(0x110000):
        category = ucd.category(chr(c))
        if is_hidden(c, category):
            table.append(HIDDEN)
        elif is_judged(c, category, likes):
            table.append(JUDGED)
        elif category in ("Mn", "Mc"):
            table.append(MARK)
        elif is_letter(category):
            name = script(chr(c))
            new = FIRST_SCRIPT + len(set(ids.values())) - 2  # LATIN and CJK are two of these values
            known = LETTER if name in ("Zyyy", "Zinh") else ids.setdefault(name, new)
            table.append(known | (LOOKALIKE if c in likes else 0))
        else:
            table.append(PLAIN)
    return table


def main() -> None:
    """Write one entry for each run of equal classes: first << CLASS_BITS | class."""
    table = classes()
    starts = [c for c in range(len(table)) if c == 0 or table[c] != table[c - 1]]
    words = [f"0x{c << CLASS_BITS | table[c]:08x}," for c in starts]
    lines = [" ".join(words[i : i + 8]) for i in range(0, len(words), 8)]
    sys.stdout.write(
        f"/* Generated by scripts/text_table.py from Unicode {ucd.unidata_version}. Do not edit. */\n"
        "static const uint32_t text_table[] = {\n" + "".join(f"        {line}\n" for line in lines) + "};\n"
    )


if __name__ == "__main__":
    main()
