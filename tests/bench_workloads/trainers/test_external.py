"""Real trainers, not written here, through `sweep launch` on CPU: every layout measured, figures as printed.

On this machine and on the one-machine Slurm cluster. SWEEP_DEEPSPEED_PYTHON, SWEEP_TRANSFORMERS_PYTHON,
SWEEP_ACCELERATE_PYTHON and SWEEP_LIGHTNING_PYTHON name interpreters that have them (DS_BUILD_OPS=0 pip install
deepspeed; pip install transformers accelerate; pip install lightning); without them the tests are skipped.
"""

import json
import os
import re
import statistics
import subprocess
from pathlib import Path

import pytest

from tests.support import driving
from tests.support.trainers.external import measured

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(params=["local", pytest.param("slurm", marks=pytest.mark.slurm)])
def cluster(request):
    """None for the local executor."""
    return request.getfixturevalue("slurm_cluster") if request.param == "slurm" else None


def deepspeed_rates(log):
    """step -> samples per second, as DeepSpeed printed it."""
    return {
        int(line.split("global_step=")[1].split(",")[0]): float(line.split("CurrSamplesPerSec=")[1].split(",")[0])
        for line in log.splitlines()
        if "CurrSamplesPerSec=" in line
    }


def test_deepspeed(tmp_path, cluster):
    overrides = ("zero=[0,1,2,3]", "micro_batch_size=4", "nodes=[1,2]", "env.OMP_NUM_THREADS=1")
    records = measured(tmp_path / "s", "deepspeed.yaml", "SWEEP_DEEPSPEED_PYTHON", *overrides, cluster=cluster)
    assert {(record["dp"], record["zero"]) for record in records} == {(dp, zero) for dp in (2, 4) for zero in range(4)}
    for record in records:
        effective = json.loads(record["effective_json"])
        assert effective["zero"] == record["zero"]
        assert effective["world_size"] == record["dp"]
        assert effective["global_batch_sequences"] * 64 == record["global_batch_tokens"]
        log = tmp_path / "s" / "logs" / f"{record['run_id']}.{record['attempt']}.log"
        printed = deepspeed_rates(log.read_text())
        rate = statistics.median(printed[step] for step in range(3, 8)) * 64
        assert record["tokens_per_second"] == pytest.approx(rate, rel=0.02)
        assert json.loads(record["versions_json"])["deepspeed"]
    asked = records[0]["warmup_iterations"] + records[0]["iterations"]
    for _, printed in exported_runs(tmp_path, "deepspeed", cluster):
        assert len(deepspeed_rates(printed)) >= asked - 2, printed


def test_the_trainer_of_transformers_by_its_progress_bar(tmp_path, cluster):
    shape = "{num_layers: 4, hidden_size: 256, num_heads: 8, intermediate_size: 1024, vocab_size: 512}"
    overrides = (f"models={{small: {shape}}}", "nodes=[1,2,4]", "site.gpus_per_node=1", "micro_batch_size=[2,8]")
    words = (*overrides, "env.OMP_NUM_THREADS=1")
    records = measured(tmp_path / "s", "hf_trainer.yaml", "SWEEP_TRANSFORMERS_PYTHON", *words, cluster=cluster)
    assert {(record["dp"], record["grad_accum"]) for record in records} == {
        *((1, 16), (1, 4), (2, 8), (2, 2), (4, 4), (4, 1))
    }
    for record in records:
        assert len(record["step_times_s"]) == 5
        # A bar that is redrawn after its step's losses leaves a step without one: the record then has none at all.
        assert all(5 < loss < 8 for loss in record["losses"] or ())
        assert json.loads(record["effective_json"]) == {"world_size": record["dp"]}
    for _, printed in exported_runs(tmp_path, "command", cluster):
        assert max(map(int, re.findall(r"\| (\d+)/\d+ \[", printed))) == 7


def exported_runs(tmp_path, trainer, cluster):
    """Run what `sweep best` writes, unchanged: (whether on several nodes, what it printed) of each cell. Those
    of several nodes are batch scripts, so only where there is a cluster."""
    written = driving.succeeds("best", tmp_path / "s", "--format", trainer, "--out", tmp_path / "out")
    for script in (Path(line) for line in written.stdout.split() if line.endswith("command.sh")):
        several = "#SBATCH --nodes" in script.read_text()
        if several and cluster is None:
            continue
        log = tmp_path / "job.log"
        command = ["sbatch", "--wait", "--output", log, script] if several else ["sh", script]
        env = {**os.environ, **(cluster.env if cluster else {}), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, env=env, cwd=script.parent, capture_output=True, text=True, timeout=300, check=False
        )
        printed = log.read_text() if several else done.stdout + done.stderr
        assert done.returncode == 0, done.stderr + printed
        yield several, printed


@pytest.mark.parametrize("start", ["rank", "node"])
@pytest.mark.parametrize(
    ("example", "variable"), [("accelerate", "SWEEP_ACCELERATE_PYTHON"), ("lightning", "SWEEP_LIGHTNING_PYTHON")]
)
def test_scripts_of_accelerate_and_lightning_and_their_exported_commands(tmp_path, cluster, example, variable, start):
    overrides = (f"params.start={start}", "nodes=[1,2]", "micro_batch_size=4", "env.OMP_NUM_THREADS=1")
    records = measured(tmp_path / "s", f"{example}.yaml", variable, *overrides, cluster=cluster)
    assert {(record["nodes"], record["dp"]) for record in records} == {(1, 2), (2, 4)}
    for record in records:
        assert json.loads(record["effective_json"]) == {"world_size": record["dp"]}
        assert json.loads(record["extra_json"])["trainer"]["reported"]["step_time_s"] > 0
        assert not any("matched no line" in note for note in record["notes"])
    asked = records[0]["warmup_iterations"] + records[0]["iterations"]
    for several, printed in exported_runs(tmp_path, "command", cluster):
        if example == "lightning":
            assert printed.count('"loss"') == asked
        else:  # accelerate prints on each node
            assert printed.count(" loss ") == asked * (2 if several else 1)
