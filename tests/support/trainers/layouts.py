"""The layouts whose configurations are stored as goldens, over each trainer's axes.

`python -m tests.support.trainers.layouts` rewrites the goldens; check the difference before you commit it.
"""

import json
from pathlib import Path

import yaml

from sweep.contract import Layout, Run
from sweep.physics.shapes import ModelShape
from sweep.plugins import TRAINER
from tests.support.paths import REPOSITORY

GOLDEN = REPOSITORY / "tests/bench_workloads/trainers/golden"
SHAPE = ModelShape(
    num_layers=8, hidden_size=256, num_heads=8, num_kv_heads=4, intermediate_size=512, vocab_size=2048
).stated()
MIXTURE = SHAPE | {"num_experts": 8, "experts_per_token": 2, "moe_intermediate_size": 128, "dense_layers": 1}

EXPERTS = MIXTURE | {"dense_layers": 0, "qk_norm": True}
SHAPES = {"mixture": MIXTURE, "experts": EXPERTS}
LAYOUTS = {
    trainer: [{**layout, "shape": SHAPES[layout["shape"]]} if "shape" in layout else layout for layout in layouts]
    for trainer, layouts in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()
}
PARAMS = {
    "command": {
        "command": "python train.py --tp {{ tp }} --pp {{ pp }} --config {{ config }}",
        "config": "model: {{ model }}\ndp: {{ dp }}\nzero: {{ zero }}\ndtype: {{ dtype }}\nsteps: {{ steps }}\n",
        "metrics": r"iteration: step (\d+)",
    },
    "deepspeed": {"script": "train.py", "script_arguments": "--layers {{ num_layers }} --steps {{ steps }}"},
    "picotron": {"model_name": "a/model", "use_cpu": False},
}


def run_of(trainer, shape=SHAPE, dtype="bf16", params=None, **layout):
    """A run of a small Llama."""
    compiled = layout.pop("compile", False)
    spread = Layout(**layout)
    return Run(
        workload=trainer,
        model="small",
        shape=shape,
        nodes=1,
        gpus_per_node=spread.gpus,
        sequence_length=512,
        layout=spread,
        dtype=dtype,
        compile=compiled,
        params={**PARAMS.get(trainer, {}), **(params or {})},
    )


def launches(trainer):
    """Command and files of each layout."""
    adapter = TRAINER.find(trainer)
    found = []
    for layout in LAYOUTS[trainer]:
        launch = adapter.configure(run_of(trainer, **layout), "/scratch", 8)
        files = {name: text.splitlines() for name, text in launch.files.items()}
        named = {k: v for k, v in layout.items() if k != "shape"} | {"mixture": "shape" in layout}
        found.append({"layout": named, "program": list(launch.program), "env": dict(launch.env), "files": files})
    return found


if __name__ == "__main__":
    for name in LAYOUTS:
        (GOLDEN / f"{name}.json").write_text(json.dumps(launches(name), indent=1) + "\n")
