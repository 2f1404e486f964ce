"""The Python side of a cellgate kernel: IPython on the built-in module `_cellgate`.

`zygote` runs once, before any kernel is forked; `kernel` configures and serves one forked kernel.
"""
