"""many.py in an actor of Ray on each node, which is the host program of its sessions: `ray_many.py FOLDER SESSIONS NODE...`.

Each node has a resource with its name. Prints what many.py prints; for the sessions of an actor that has ended, what
their files say.
"""

import json
import os
import sys
from pathlib import Path

import many
import ray

HERE = Path(__file__).resolve().parent


@ray.remote
class Host:
    def run(self, folder: Path, sessions: int, node: str) -> list[dict]:
        import cellgate

        return many.run(folder, node, sessions, "", {node: cellgate.Client()})


def main(folder: Path, sessions: int, nodes: list[str]) -> None:
    path = f"{HERE}{os.pathsep}{os.environ['PYTHONPATH']}"
    ray.init(runtime_env={"env_vars": {"CELLGATE_PRIVATE": "1", "PYTHONPATH": path}}, log_to_driver=False)
    hosts = {n: Host.options(resources={n: 1}).remote() for n in nodes}
    node_of = {host.run.remote(folder, sessions, n): n for n, host in hosts.items()}
    waiting, records = [*node_of], []
    ended: list[many.One] = []
    while waiting:
        done, waiting = ray.wait(waiting)
        n = node_of[done[0]]
        try:
            records += ray.get(done[0])
        except ray.exceptions.RayActorError as e:
            lost = [many.One(n, f"{n}-{i}", folder, "") for i in range(sessions)]
            for one in lost:
                one.lost = f"{type(e).__name__}: {e}"
            ended += lost
            many.write_progress(folder / "driver.progress", {}, [one.name for one in ended])
    print(json.dumps(records + [one.got() for one in ended]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
