"""Checks sys.path before anything is imported from it: code of the zygote runs outside of the sandbox.

Imports only what every interpreter has imported at its start; not even __future__.
"""

import os
import sys


def check() -> None:
    """Refuse folders outside of the environment, its base Python and this one, which is first in sys.path.

    cg_kernel_env_check() reads .pth files, but cannot know what code in them adds. After this sys.path has no such
    folder, and this one is last. Raises ImportError with the folder.
    """
    ours = sys.path.pop(0)
    inside = [os.path.realpath(place) for place in (sys.prefix, sys.base_prefix, sys.base_exec_prefix)]
    outside = [
        place
        for place in sys.path
        if not any(os.path.commonpath([os.path.realpath(place), folder]) == folder for folder in inside)
    ]
    sys.path[:] = [place for place in sys.path if place not in outside] + [ours]
    if outside:
        raise ImportError(
            f"the environment {sys.prefix} imports from {outside[0]}, outside of it. Code that a kernel's environment "
            "imports runs outside of the sandbox as well: remove what adds that folder to sys.path, such as a .pth file"
        )
