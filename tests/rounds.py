"""How often tests repeat what may or may not fail: races, many sessions."""

import os

# Whether scripts/soak runs the tests: also what differs little from other cases.
ALL = os.environ.get("CG_ROUNDS") == "all"


def rounds(n: int, short: int = 0) -> int:
    """As many rounds as `short`, by default a quarter of them; scripts/soak runs all of them."""
    return n if ALL else short or n // 4
