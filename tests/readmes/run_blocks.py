"""Runs blocks of a document, one after the other in one namespace, as a notebook would: `await` is allowed outside of functions.
The blocks are a JSON array on standard input. Prints a JSON object: which block failed (-1: none), and how."""

import ast
import asyncio
import inspect
import json
import sys
import traceback


async def main() -> dict[str, object]:
    names: dict[str, object] = {"__name__": "__main__"}
    for n, block in enumerate(json.load(sys.stdin)):
        try:
            code = compile(block, f"block {n}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, names)
            if inspect.isawaitable(result):
                await result
        except Exception as e:
            context = e.__context__
            texts = [f"{type(x).__name__}: {x}" for x in (e, context) if x]
            line = traceback.extract_tb(e.__traceback__)[-1].lineno
            return {"failed": n, "error": texts, "line": block.splitlines()[line - 1].strip() if line else ""}
    return {"failed": -1, "error": [], "line": ""}


print(json.dumps(asyncio.run(main())))
