"""Plans of a grid for a workload that can vary everything, for tests of plans."""

from sweep.contract import FREE, Workload
from sweep.inputs.load import parse_grid
from sweep.planning.build import build

AXES = frozenset({*FREE, "dtype", "compile"})
ANY = Workload(
    name="any",
    main="nowhere:main",
    axes=AXES,
    params={"optimizer": "adamw", "width": 1.0, "fused": True},
    choices={
        "recompute": ("none", "selective", "full"),
        "pp_schedule": ("gpipe", "1f1b", "interleaved_1f1b"),
        "dtype": ("bf16", "fp32"),
        "optimizer": ("adamw", "sgd"),
    },
)
SHAPE = "{num_layers: 12, hidden_size: 96, num_heads: 12, num_kv_heads: 6, intermediate_size: 256, vocab_size: 512}"
BASE = f"""\
models: {{small: {SHAPE}}}
nodes: [1]
sequence_length: 64
global_batch: 3072
site: {{gpu: h100, gpus_per_node: 6}}
"""


def plan_of(text, workload=ANY, overrides=()):
    grid = parse_grid(text, "grid.yaml", overrides)
    return build(grid, grid.site, workload)


def rows_of(text, workload=None, *overrides):
    """Of a workload that is registered, where the grid names it."""
    return plan_of(text, workload, overrides).table.to_pylist()


def rejected(plan):
    return [row for row in plan.table.to_pylist() if row["status"] == "rejected"]


def reasons(plan):
    return {reason for row in rejected(plan) for reason in row["reasons"]}
