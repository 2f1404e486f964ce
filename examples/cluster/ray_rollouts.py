"""Episodes in actors of Ray, each with a supervisor and kernels of its own.

    ray_rollouts.py [ACTORS [EPISODES]]

The actor is the host program: it runs the policy, answers functions and decides, on the machine of its kernels. When it
has ended before its answer, with its sessions, the line says so: Ray does not start it again by itself.
"""

import json
import os
import sys
from pathlib import Path

import ray


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Rollouts:
    def run(self, count: int) -> dict:
        import rollouts

        return rollouts.run(count)


def main(actors: int = 2, count: int = 8) -> None:
    # The supervisor ends with its actor's process. Without this, all actors of a machine would share one.
    path = os.pathsep.join([str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")])
    environment = {"env_vars": {"CELLGATE_PRIVATE": "1", "PYTHONPATH": path.rstrip(os.pathsep)}}
    ray.init(runtime_env=environment, log_to_driver=False)
    workers = [Rollouts.remote() for _ in range(actors)]
    for answer in [w.run.remote(count) for w in workers]:
        try:
            print(json.dumps(ray.get(answer)))
        except ray.exceptions.RayActorError as e:
            print(json.dumps({"lost": str(e)}))
    ray.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
