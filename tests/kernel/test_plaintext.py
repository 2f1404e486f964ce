"""Displays as text for agents; displays of notebooks are unchanged."""

from pathlib import Path

import pytest
from kernel.harness import Kernel, Zygote

SETUP = """
from IPython.display import HTML, JSON, SVG, Javascript, Latex, Markdown, display
class Html:
    def __init__(self, text): self.text = text
    def _repr_html_(self): return self.text
"""


@pytest.fixture
def agent(kernel: Kernel) -> Kernel:
    assert kernel.run(SETUP).status == "ok"
    return kernel


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("Markdown('# Title\\n\\n- a')", "# Title\n\n- a"),
        ("Latex('$x^2$')", "$x^2$"),
        ("JSON({'a': [1]})", '{\n  "a": [\n    1\n  ]\n}'),
        ("HTML('<h2>Ti&amp;tle</h2><p>one <b>two</b> 1 < 2<br>three<ul><li>x<li>y</ul>')", "## Ti&tle\none two 1 < 2\nthree\n- x\n- y"),
        ("HTML('<table><tr><th>a<th>b</tr><tr><td>1<td>2</tr></table>')", "a | b\n1 | 2"),
        ("HTML('<style>p {}</style>kept<script>1<2</script> too')", "kept too"),
        ("HTML('<a href=\"https://example.org/\">link</a> <img alt=\"a cat\">')", "link (https://example.org/) [image: a cat]"),
        ("HTML('<pre>a\\n  b</pre>')", "a\n  b"),
        ("SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"><title>T</title><text>label</text></svg>')", "[SVG image] T\nlabel"),
        ("Html('<i>mine</i>')", "mine"),
        ("HTML('<p>&amp; &#' + '9' * 5000)", "&amp; &#" + "9" * 5000),  # more digits than Python makes a number of
    ],
)
def test_rich_objects_reach_an_agent_as_text(agent: Kernel, code: str, text: str) -> None:
    assert agent.run(code).result == text
    (shown,) = agent.run(f"display({code})").of("DISPLAY_DATA")
    assert shown.json["data"]["text/plain"] == text
    assert len(shown.json["data"]) == 2  # and the form that it was made of


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("type('R', (Html,), {'__repr__': lambda s: 'own'})('<b>x</b>')", "own"),
        ("Html('<p></p>')", None),
        ("Html('')", None),
        ("object()", None),
        ("Javascript('1')", "<IPython.core.display.Javascript object>"),
        ("'<IPython.core.display.Markdown object>'", "'<IPython.core.display.Markdown object>'"),
    ],
)
def test_what_has_a_text_or_nothing_better_stays(agent: Kernel, code: str, text: str | None) -> None:
    result = agent.run(code).result
    assert result == text if text else (result or "").startswith("<")


def test_a_document_without_end_is_bounded(agent: Kernel) -> None:
    agent.run("x = HTML('<p>' + 'word ' * 2_000_000)")
    (shown,) = agent.run("display(x)").of("DISPLAY_DATA")
    assert len(shown.json["data"]["text/plain"]) <= 500_000


@pytest.mark.parametrize(
    "source",
    ["'<!' * 200_000", "'<div ' * 80_000", "'<!--' * 100_000", "'<script>' * 50_000", "'<a href=\"' * 50_000", "'<a \\'\"' * 50_000",
     "'<ul>' * 100_000", "'&' * 400_000", "'\u0130<b>' * 100_000", "' ' * 499_000 + '<'", "'<a ' + 'href ' * 90_000 + '>x'"],
)  # fmt: skip
def test_no_document_takes_long(agent: Kernel, source: str) -> None:
    assert agent.run(f"display(HTML({source}))").status == "ok"


def test_notebooks_get_the_same_as_before(zygote: Zygote, workspace: Path) -> None:
    with zygote.spawn(workspace, front="jupyter") as kernel:
        kernel.run(SETUP)
        (shown,) = kernel.run("display(Markdown('# a'))").of("DISPLAY_DATA")
        assert shown.json["data"] == {"text/markdown": "# a", "text/plain": "<IPython.core.display.Markdown object>"}
        assert kernel.run("HTML('<b>x</b>')").result == "<IPython.core.display.HTML object>"
