"""Faults inside real trainers, DeepSpeed and Hugging Face's Trainer: the expected outcome, and no process left.

For SWEEP_DEEPSPEED_PYTHON and SWEEP_TRANSFORMERS_PYTHON see test_external.py. `real_fault.py` lists what is real.
"""

import json

import pytest
import yaml

from tests.support import driving
from tests.support.trainers.external import REPOSITORY, SCRIPTS, python_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SCRIPT = SCRIPTS / "real_fault.py"
FAULTS = ("hang", "oom_cuda", "oom_host", "import_error")
EXAMPLES = {"deepspeed": "SWEEP_DEEPSPEED_PYTHON", "hf_trainer": "SWEEP_TRANSFORMERS_PYTHON"}
PLACES = {"local": {"nodes": 1, "ranks": 2}, "slurm": {"nodes": 2, "ranks": 1}}


def grid(example, nodes, ranks):
    """The example's own grid with `real_fault.py` in between, one run per fault."""
    grid = yaml.safe_load((REPOSITORY / f"examples/trainers/{example}.yaml").read_text())
    params = grid["params"]
    params["python"] = python_of(EXAMPLES[example])
    if "script" in params:
        own, words = params["script"], params["script_arguments"]
        params["script_arguments"] = [f"{fault} {own} {words}" for fault in FAULTS]
        params["script"] = str(SCRIPT)
        grid |= {"zero": 2, "micro_batch_size": 4}
    else:
        params["command"] = params["command"].replace("python ", f"python {SCRIPT} {{{{ a }}}} ", 1)
        params["a"] = list(FAULTS)
        grid["micro_batch_size"] = 16
    site = {**grid["site"], "gpus_per_node": ranks, "poll_interval_s": 1, "max_pilots": 1}
    timeouts = {"start": "120s", "first_iteration": "60s", "steady": "10s"}
    return {**grid, "nodes": nodes, "site": site, "timeouts": timeouts}


def fault_of(record):
    params = json.loads(record["params_json"])
    return (params.get("a") or params["script_arguments"]).split()[0]


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("executor", ["local", pytest.param("slurm", marks=pytest.mark.slurm)])
def test_each_fault_ends_with_its_outcome_and_nothing_is_left(tmp_path, executor, example, request):
    content = grid(example, **PLACES[executor])
    cluster = request.getfixturevalue("slurm_cluster") if executor == "slurm" else None
    directory = tmp_path / "s"
    where = {"cwd": REPOSITORY, "env": cluster.env if cluster else None}
    driving.launch(tmp_path, yaml.safe_dump(content), executor=executor, **where, timeout=800)
    assert driving.wait_until_unmarked(directory, 20) == []
    if cluster:
        cluster.wait_idle()
        assert cluster.job_processes() == []
    records = driving.records_of(directory)
    outcomes = [(fault_of(record), record["outcome"], record["message"]) for record in records]
    assert {fault for fault, *_ in outcomes} == set(FAULTS)
    assert [one for one in outcomes if one[0] != one[1]] == []
