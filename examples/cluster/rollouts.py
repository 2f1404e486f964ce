"""Episodes on one machine, each in a session of its own, all at once.

    rollouts.py [EPISODES [FOLDER]]

A scripted "policy" writes the cells of an episode, and a function of this program scores its answer. Prints one line of
JSON. rollouts.sbatch starts it on each node of a job of Slurm, and ray_rollouts.py calls run() in actors of Ray.
"""

import asyncio
import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

import cellgate.aio

CELLS = (
    "import math\nprimes = [n for n in range(2, 200) if all(n % d for d in range(2, math.isqrt(n) + 1))]",
    "from mcptools.host import submit\nsubmit.run(answer=sum(primes))",
)


async def episode(folder: Path, number: int) -> dict:
    """One rollout: its score, and the seconds until its session was open."""
    workspace = folder / str(number)
    workspace.mkdir()
    scores = []

    def submit(answer: int) -> str:
        """Scores an answer. The code of an episode can send whatever it likes."""
        scores.append(float(answer == 4227))
        return "thank you"

    began = time.monotonic()
    tier = os.environ.get("CELLGATE_TIER")  # "landlock" where user namespaces are forbidden, as in most pods
    async with cellgate.aio.Session(workspace, tier=tier, cores=1, memory_bytes=512 << 20) as session:
        opened = time.monotonic() - began
        await session.functions({"submit": submit})
        for code in CELLS:  # a real policy reads result.text and writes the next cell
            result = await session.run(code, timeout=30)
            if result.status != "ok":
                break
    return {"score": max(scores, default=0.0), "opened": opened}


async def episodes(count: int, folder: Path) -> list[dict]:
    return await asyncio.gather(*(episode(folder, n) for n in range(count)))


def run(count: int, folder: str | None = None) -> dict:
    """Runs so many episodes, with workspaces in a temporary folder of @folder (default: the node's own)."""
    with tempfile.TemporaryDirectory(prefix="rollouts-", dir=folder) as own:
        done = asyncio.run(episodes(count, Path(own)))
    return {
        "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "episodes": len(done),
        "score": sum(d["score"] for d in done) / max(1, len(done)),
        "slowest_open_s": round(max((d["opened"] for d in done), default=0), 3),
    }


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]) if len(sys.argv) > 1 else 8, *sys.argv[2:3])))
