"""How often tests repeat what may or may not fail: races, many sessions."""

import os


def rounds(n: int) -> int:
    """A quarter of the rounds; scripts/soak runs all of them."""
    return n if os.environ.get("CG_ROUNDS") == "all" else n // 4
