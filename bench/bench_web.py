"""The Markdown of `fetch_webpage` beside Readability's text, for saved pages.

PAGES: folders of .html and .html.gz files, such as `test/test-pages` of mozilla/readability and `html` of
scrapinghub/article-extraction-benchmark. Readability has the article alone, fetch_webpage the page. So what counts is
how much of the article's text the Markdown has: the share of its three words in a row.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

# A line for each page: the text of the article, and of all scripts that are longer than what pages also show.
READABILITY = """
const { Readability } = require('@mozilla/readability');
const { JSDOM, VirtualConsole } = require('jsdom');
for (const line of require('fs').readFileSync(0, 'utf8').trim().split('\\n')) {
  const doc = new JSDOM(JSON.parse(line), { virtualConsole: new VirtualConsole() }).window.document;
  const scripts = [...doc.querySelectorAll('script')].map(s => s.textContent.trim()).filter(s => s.length > 60);
  // Blocks are words apart, which textContent forgets.
  const serializer = e => { e.querySelectorAll('*').forEach(n => n.after(' ')); return e.textContent; };
  const article = new Readability(doc, { serializer }).parse();
  console.log(JSON.stringify({ text: article ? article.content : '', scripts }));
}
"""


def triples(text: str) -> Counter[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return Counter(zip(words, words[1:], words[2:], strict=False))


def main() -> int:
    ap = argparse.ArgumentParser(prog="bench/bench_web.py", description=__doc__)
    ap.add_argument("pages", nargs="+", type=Path)
    ap.add_argument("--modules", type=Path, required=True, help="a folder with @mozilla/readability and jsdom, of npm")
    ap.add_argument("--package", type=Path, required=True, help="the folder that has the Python package cellgate")
    opt = ap.parse_args()
    sys.path.insert(0, str(opt.package))
    from cellgate.surfaces.web import markdown

    files = sorted(f for folder in opt.pages for f in folder.rglob("*") if f.name.endswith((".html", ".html.gz")))
    files = [f for f in files if f.name != "expected.html"]  # Readability's own results
    read = {f: (gzip.decompress(f.read_bytes()) if f.suffix == ".gz" else f.read_bytes()) for f in files}
    pages = {f: data.decode(errors="replace") for f, data in read.items()}
    done = subprocess.run(
        ["node", "-e", READABILITY],
        input="".join(json.dumps(html) + "\n" for html in pages.values()),
        cwd=opt.modules,
        capture_output=True,
        text=True,
        check=True,
    )
    shares, ran, spent = {}, [], 0.0
    for (file, html), line in zip(pages.items(), done.stdout.strip().split("\n"), strict=True):
        found = json.loads(line)
        began = time.perf_counter()
        # Links are no words of the text.
        text = re.sub(r"\]\([^)]*\)|[*_`\\]", lambda m: " " if len(m[0]) > 1 else "", markdown(html))
        spent += time.perf_counter() - began
        if any(script[:200] in text for script in found["scripts"]) or re.search(r"\]\(\s*javascript:", markdown(html)):
            ran.append(file)
        if wanted := triples(found["text"]):
            shares[file] = 100 * (wanted & triples(text)).total() / wanted.total()
    worst = sorted(shares, key=lambda f: shares[f])[:5]
    print(f"{len(pages)} pages, {sum(map(len, pages.values())) / (1 << 20) / spent:.1f} MiB of HTML in a second")
    print(f"Readability finds an article in {len(shares)}; of its text the Markdown has, in %:")
    print(f"  median {statistics.median(shares.values()):.1f}, mean {statistics.mean(shares.values()):.1f}")
    print(*(f"  {shares[f]:5.1f} {f}" for f in worst), sep="\n")
    print(f"pages whose scripts are in the Markdown: {len(ran)}", *ran, sep="\n  ")
    return int(bool(ran))


if __name__ == "__main__":
    sys.exit(main())
