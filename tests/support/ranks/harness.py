"""Request attempts from the fork server, and check the results."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from sweep.contract import Layout, Run
from tests.support.paths import REPOSITORY

DENSE = {
    "num_layers": 4,
    "hidden_size": 64,
    "num_heads": 4,
    "num_kv_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 256,
}
LARGER = DENSE | {"hidden_size": 128, "intermediate_size": 384}
WIDE = DENSE | {"num_heads": 8, "num_kv_heads": 4, "num_layers": 8}
MOE = DENSE | {
    "num_experts": 4,
    "experts_per_token": 2,
    "moe_intermediate_size": 64,
    "shared_experts": 1,
    "dense_layers": 1,
    "qk_norm": True,
}
TIED = DENSE | {"tied_embeddings": True}
LATENT = DENSE | {"num_kv_heads": 4, "kv_rank": 24, "q_rank": 40, "rope_head_dim": 8}
DEEPSEEK = MOE | {"qk_norm": False, "num_kv_heads": 4, "kv_rank": 24, "rope_head_dim": 8, "mtp_layers": 2}
"""latent attention, experts and multi-token prediction together"""
LATENT_MOE = DEEPSEEK | {"mtp_layers": 0, "q_rank": 40}
FURTHER = TIED | {"mtp_layers": 1}
SHAPES = {
    "dense": DENSE,
    "wide": WIDE,
    "moe": MOE,
    "tied": TIED,
    "latent": LATENT,
    "deepseek": DEEPSEEK,
    "latent_moe": LATENT_MOE,
    "further": FURTHER,
}


@dataclass(frozen=True)
class Rank:
    """What one rank reported, and how it ended."""

    exit: int
    killed: bool
    messages: list[dict]
    stderr: str

    @property
    def measurement(self) -> dict:
        found = [m for m in self.messages if m["kind"] == "measurement"]
        assert len(found) == 1, f"exit {self.exit}, {len(found)} measurements\n{self.stderr}"
        return found[0]

    @property
    def failure(self) -> dict | None:
        return next((m for m in self.messages if m["kind"] == "failure"), None)

    @property
    def heartbeats(self) -> list[dict]:
        return [m for m in self.messages if m["kind"] == "beat"]


class ForkServer:
    """The preloaded fork server, as a subprocess with one thread."""

    def __init__(self, *workloads: str) -> None:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ranks.fork_server", *workloads],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env=environment,
        )
        self.threads = self._answer()["threads"]

    def attempt(self, run: Run, *, seed: int = 7, timeout_s: float = 120, main: str = "", **place) -> list[Rank]:
        """``main``: instead of the workload's; ``place``: further fields of each rank's place."""
        place |= {"seed": seed}
        request = {"run": run.canonical_json(), "timeout_s": timeout_s, "main": main, "place": place}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return [Rank(**rank) for rank in self._answer()]

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=300)

    def _answer(self):
        line = self._process.stdout.readline()
        assert line, f"the fork server ended with {self._process.wait()}"
        return json.loads(line)


def a_run(layout: Layout, *, shape: dict | None = None, workload: str = "transformer", **values) -> Run:
    """A run of the tiny model: 32 positions, one warm-up and two timed iterations unless given otherwise."""
    params = values.pop("params", {})
    if workload == "transformer":
        params = {"process_group_timeout_s": 60.0, "threads": 1, "cpu_memory": False, "count_flops": False} | params
    return Run(
        workload=workload,
        model="tiny",
        shape=DENSE if shape is None else shape,
        nodes=1,
        gpus_per_node=layout.gpus,
        layout=layout,
        params=params,
        **{"sequence_length": 32, "dtype": "fp32", "warmup_iterations": 1, "iterations": 2} | values,
    )
