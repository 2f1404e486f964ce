"""The Python side of a cellgate kernel: IPython on the built-in module `_cellgate`.

`zygote` prepares everything once, before any kernel exists; `kernel` configures and serves one forked kernel.
"""
