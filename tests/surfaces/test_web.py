"""The functions behind the toolset `web`: Markdown of pages, and what a hostile page can try."""

from __future__ import annotations

import asyncio
import re
import socketserver
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest
from package_fixtures import package  # noqa: F401

pytest.importorskip("html_to_markdown")


@pytest.fixture
def web(package: Path) -> ModuleType:  # noqa: F811
    from cellgate.surfaces import web

    return web


def test_markdown(web) -> None:
    html = """<title>t</title><style>p {}</style><h1>A</h1><h3>B</h3><p>x <a href="/y?q=1">link</a> <b>bold</b></p>
<ul><li>one<li>two</ul><table><tr><th>c<th>d</tr><tr><td>1<td>2</tr></table>
<pre><code class="language-py">def f():
    return 1
</code></pre>"""
    assert (
        web.markdown(html, "https://a.example/b/")
        == """# A

### B

x [link](https://a.example/y?q=1) **bold**

- one
- two

| c | d |
| --- | --- |
| 1 | 2 |

```py
def f():
    return 1
```"""
    )


def test_a_page_within_a_form_is_a_page(web) -> None:
    html = "<form><h1>A</h1><input name=q><textarea></textarea><p>text</p></form>"
    assert web.markdown(html) == "# A\n\ntext"


ACTIVE = [
    "<script>EVIL</script>",
    "<style>EVIL</style>",
    "<template>EVIL</template>",
    "<svg><script>EVIL</script><text>EVIL</text></svg>",
    "<noscript><p>EVIL</noscript>",
    "<object data=x>EVIL</object>",
    "<p hidden>EVIL</p>",
    "<!-- EVIL -->",
    "<a href='javascript:EVIL'>x</a>",
    "<a href=' JaVaScRiPt:EVIL'>x</a>",
    "<a href='java&#10;script:EVIL'>x</a>",
    "<a href='vbscript:EVIL'>x</a>",
    "<a href='data:text/html,EVIL'>x</a>",
    "<img src='data:image/png;base64,EVIL'>",
    "<img src=x onerror=EVIL>",
    "<body onload=EVIL>",
    "<iframe srcdoc='EVIL'></iframe>",
    "<form><input type=hidden value=EVIL></form>",
    "<math><mtext></mtext><script>EVIL</script></math>",
]


@pytest.mark.parametrize("html", ACTIVE)
def test_what_is_active_or_hidden_is_not_in_it(web, html: str) -> None:
    assert "EVIL" not in re.sub(r"<[^>]*>", "", web.markdown(f"<p>before</p>{html}<p>after</p>", "http://a.example/"))


def test_a_page_cannot_end_its_own_text(web) -> None:
    seen = {web.untrusted("http://a.example/", "x").rsplit("\n", 1)[1] for _ in range(50)}
    assert len(seen) == 50 and all(re.fullmatch("[0-9a-f]{16}", mark) for mark in seen)
    text = web.untrusted("http://a.example/", "x" * 60_000)
    mark = text.rsplit("\n", 1)[1]
    assert text.startswith("Untrusted text of http://a.example/") and mark in text.splitlines()[0]
    assert len(web.untrusted("http://a.example/" + "u" * 9000, "", "t" * 60_000)) < 2000
    assert text.count("x" * 50_000) == 1 and "x" * 50_001 not in text and "[10000 more characters]" in text


ANSWERS = {
    "/status": b"HTTP/1.1 500 EVIL\r\nX-Proxy-Error: EVIL\r\nContent-Length: 4\r\n\r\nEVIL",
    "/type": b"HTTP/1.1 200 OK\r\nContent-Type: application/EVIL EVIL\r\nContent-Length: 4\r\n\r\nEVIL",
    "/broken": b"HTTP/1.1 200 OK\r\nEVIL\r\n\r\nEVIL",
    **{
        f"/{name}": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=%s\r\nContent-Length: 300014\r\n\r\n%s"
        % (name.encode(), b"EVIL" + b"a" * 10 + b"-" + b"zzz" * 100_000)
        for name in ("punycode", "idna", "undefined", "hex", "none", "unicode-escape")
    },
}


@pytest.mark.parametrize("path", ANSWERS)
def test_what_a_server_says_is_marked_in_errors_too(web, slowness: float, path: str) -> None:
    """And it does not choose an encoding that takes hours or fails."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(ANSWERS[path])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        begin = time.process_time()
        try:
            text = asyncio.run(web.fetch_webpage(f"http://127.0.0.1:{server.server_address[1]}{path}"))
        except web.RefusedError as e:
            text = str(e)
        assert time.process_time() - begin < 2 * slowness
        server.shutdown()
    head, _, _ = text.partition("\n")
    assert "evil" in text.lower() and "evil" not in head.lower()
    assert head.startswith("Untrusted text of http://127.0.0.1:") and text.endswith("\n" + head[-17:-1])


def test_speed_of_ordinary_and_hostile_pages(web, slowness: float) -> None:
    ordinary = "".join(
        f"<h2>S{i}</h2><p>Lorem <b>ipsum</b> <a href='/l{i}'>dolor</a> sit amet, consetetur sadipscing elitr</p>"
        f"<ul><li>a<li>b<ul><li>c</ul></ul><table><tr><th>x<th>y</tr><tr><td>{i}<td>2</tr></table>"
        for i in range(8000)
    )
    hostile = [
        "<div>" * 100_000,
        "<table>" * 20_000,
        "<ul><li>" * 20_000,
        "<p" * 200_000,
        "<a href='" + "x" * 1_000_000,
    ]
    hostile += ["<b>" * 100_000, "](javascript:" * 80_000, "<blockquote>" * 20_000, "&" * 1_000_000]
    for html in (ordinary, *hostile):
        begin = time.process_time()
        web.markdown(html, "http://a.example/")
        seconds = time.process_time() - begin
        assert seconds < max(0.2, len(html) / 2**20) * slowness, (html[:40], seconds)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://a.example/",
        "http://",
        "data:text/html,x",
        "http://u:p@a.example/",
        "javascript:1",
        "",
    ],
)
def test_addresses_that_are_refused(web, url: str) -> None:
    for call in (web.fetch_webpage, web.browser_fetch):
        with pytest.raises(web.RefusedError):
            asyncio.run(call(url))


def test_what_is_missing_says_what_to_install(web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_BROWSERS", ("no-such-browser",))
    with pytest.raises(web.RefusedError, match="apt install chromium"):
        web.browser_path()
    monkeypatch.delenv("CELLGATE_WEB_SEARCH", raising=False)
    with pytest.raises(web.RefusedError, match="--web-search"):
        asyncio.run(web.web_search("x"))
    monkeypatch.setitem(__import__("sys").modules, "html_to_markdown", None)
    web._converter.cache_clear()
    with pytest.raises(web.RefusedError, match="pip install"):
        asyncio.run(web.fetch_webpage("http://a.example/"))
    web._converter.cache_clear()
