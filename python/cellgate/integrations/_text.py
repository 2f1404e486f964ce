"""What a cell has shown, for models and logs of a framework: within limits, and without control characters."""

from __future__ import annotations

from cellgate import Execution

CELL_OUTPUT_MAX = 256 << 20
"""What a cell may write, where an integration opens the session."""
TEXT_MAX = 1 << 20
IMAGES_MAX = 16
IMAGE_MAX = 8 << 20
PNG = b"\x89PNG\r\n\x1a\n"

# Frameworks write texts to terminals, which obey escape sequences.
_CONTROL = {c: f"\\x{c:02x}" for c in (*range(32), *range(127, 160)) if chr(c) not in "\t\n\r"}


def plain(text: str) -> str:
    """@text with control characters as escapes; without its middle if it is longer than TEXT_MAX characters."""
    if len(text) > TEXT_MAX:
        half = TEXT_MAX // 2
        text = f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
    return text.translate(_CONTROL)


def shown(execution: Execution) -> tuple[str, list[bytes]]:
    """The text and the PNG images of a cell; the text names how many images were left out."""
    text = plain(execution.report)
    images = execution.images
    fit = [image for image in images if image.startswith(PNG) and len(image) <= IMAGE_MAX][:IMAGES_MAX]
    if len(fit) < len(images):
        text += f"[{len(images) - len(fit)} images left out: no PNG, more than {IMAGES_MAX}, or too large]\n"
    return text, fit
