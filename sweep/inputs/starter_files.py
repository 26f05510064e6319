"""A first grid and a site as commented text: known values filled in, every other key commented out with its meaning.

Pure: facts in, text out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweep.inputs.validation import amount_text
from sweep.inputs.yaml_lines import dump
from sweep.physics.hardware import GPUS

Line = tuple[str, str, str]
"""a key, an example of its value as YAML, what it means"""
WIDTH = 36
WIDEST = 4
"""most nodes in a first grid"""
SEQUENCES = 256
"""sequences in a step of a first grid on GPUs, at least"""
SMALL_GPU_BYTES = 40 * 10**9
SMALL_NODE_BYTES = 200 * 10**9
"""an 8B model's weights, gradients and optimizer take 144 GB, and a layer's activations and buffers some more"""

SITE: tuple[Line, ...] = (
    ("name", "my-cluster", "in job names and records"),
    ("partition", "gpu", "as sbatch --partition; without it the cluster's default"),
    ("account", "research", "as sbatch --account, if the cluster requires one"),
    ("qos", "normal", "as sbatch --qos"),
    ("reservation", "benchmarks", "as sbatch --reservation"),
    ("constraint", "h100&ib", "node features, as sbatch --constraint"),
    ("gpu", "h100", "kind of accelerator: " + ", ".join(GPUS)),
    ("gpus_per_node", "8", "ranks per node: GPUs, or processes where gpu is cpu"),
    ("cpus_per_node", "96", "all CPUs of a node"),
    ("max_nodes", "64", "the widest pilot allowed; a grid that asks for more is refused"),
    ("pilot_time", "4h", "wall time of one pilot; short jobs start sooner"),
    ("max_pilots", "4", "pilots in the queue or running at once"),
    ("max_runs_per_pilot", "1", "1: one job per run; without it as many as the time allows"),
    ("nice", "100", "as sbatch --nice: a higher number lets others go first"),
    ("setup", "[module load cuda]", "shell lines of your own, run once per pilot; a venv: see python"),
    ("env", "{NCCL_IB_HCA: mlx5}", "environment variables of every rank"),
    ("container_prefix", "[apptainer, exec, --nv, --bind, /shared, image.sif]", "put before each agent's command"),
    ("srun", "[--container-image=/images/torch.sqsh]", "further options of the agents' srun, such as Pyxis'"),
    ("sbatch", "[--exclude=node7]", "further sbatch options; --mem and --gres replace sweep's own"),
    ("python", "/shared/venv/bin/python", "the interpreter on compute nodes; without it the one that launches"),
    ("torch_version", '"2.11.0"', "torch on the compute nodes: some layouts need a newer one"),
    ("scratch", "/local/scratch", "a directory on each node's own disk"),
    ("interface", "ib0", "the network interface for the leader, the ranks' rendezvous, NCCL and gloo"),
    ("port_range", "[20000, 20999]", "ports for the leader and the ranks' rendezvous, where a firewall asks for it"),
    ("dollars_per_gpu_hour", "2.5", "price of an hour of one GPU, for costs in dollars"),
    ("co2_g_per_kwh", "380.0", "carbon intensity of the electricity, for the metric co2_g_per_million_tokens"),
    ("umask", '"0077"', "who else may read a sweep's directory: '0027' the group, '0022' everyone; in quotes"),
    ("measured", "{}", "rates measured on this cluster; usually in a file next to this one, NAME.measured.yaml"),
    ("node_groups", "{}", "nodes of several kinds: {a100: {partition: gpu-a100, gpu: a100}} (docs/reference/grid.md)"),
    ("poll_interval_s", "15s", "the scheduler is asked at most this often"),
    ("max_local_ranks", "8", "ranks at once on this machine, without Slurm"),
)
"""every key of a site file"""

GRID: tuple[tuple[str, tuple[Line, ...]], ...] = (
    (
        "What is measured.",
        (
            ("name", "first", "of the sweep and its directory"),
            ("models", "[8B]", "names of the catalogue (docs/reference/grid.md#models), or name: {shape}"),
            ("nodes", "[1, 2, 4, 8]", "numbers of nodes; also {from: 1, to: 8, times: 2}"),
            ("sequence_length", "4096", "tokens"),
            ("global_batch", "1Mi", "tokens per optimizer step; 1Mi is 1,048,576"),
            ("tokens_per_gpu", "8Ki", "instead of global_batch: weak scaling"),
            ("global_batch_tolerance", "0.05", "how far, as a fraction, a layout's batch may be off"),
            ("workload", "transformer", "or torchtitan, command, … (docs/reference/grid.md#workloads)"),
            ("params", "{attention: [auto]}", "parameters of the workload; a list is an axis"),
            ("env", "{NCCL_ALGO: [Ring, Tree]}", "environment variables of the ranks; a list is an axis"),
        ),
    ),
    (
        "Axes: one value or a list; dp and grad_accum follow. `sweep plan` rejects what cannot work, with reasons.",
        (
            ("tp", "[1, 2, 4, 8]", "tensor parallel; auto: the divisors of a node's GPUs"),
            ("pp", "[1, 2, 4]", "pipeline stages; auto: the divisors of the GPUs"),
            ("cp", "[1, 2]", "context parallel"),
            ("ep", "[1, 2]", "expert parallel, of models with experts"),
            ("zero", "[0, 1, 3]", "ZeRO stages"),
            ("micro_batch_size", "[1, 2, 4]", "sequences; auto: 1 to 16"),
            ("recompute", "[none, selective, full]", "activations that are recomputed"),
            ("pp_schedule", "[gpipe, 1f1b]", "order of the pipeline's micro-batches"),
            ("dtype", "bf16", "number format"),
            ("compile", "[false, true]", "torch.compile"),
            ("tp_across_nodes", "true", "tensor parallelism may be wider than a node"),
            ("dp", "[8, 16]", "keep only these widths of data parallelism"),
            ("grad_accum", "[1, 2, 4]", "keep only these numbers of micro-batches"),
            ("constraints", "[tp * pp <= 16]", "conditions that every candidate must meet"),
            ("include", "[{tp: 2, recompute: full}]", "points beyond the product of the axes"),
            ("exclude", "[{zero: 3, pp: 2}]", "candidates that match are dropped"),
        ),
    ),
    (
        "How long, how often, and how much may be spent.",
        (
            ("warmup_iterations", "2", "not counted"),
            ("iterations", "5", "timed"),
            ("repeats", "1", "measurements of each configuration"),
            ("remeasure", "0.1", "share of all runs that measure the best of the cells again at the end; 0: none"),
            ("strategy", "prune", "or exhaustive, guided, playbook"),
            ("budget", "{node_hours: 20, runs_per_cell: 10}", "also share, runs, wall_time, node_hours_per_cell"),
            ("isolate", "true", "a run of several nodes has the fabric to itself"),
            ("preflight", "quick", "check a pilot's nodes before its first run: quick, node, perf or off"),
            ("seed", "0", "of the weights and the synthetic data"),
            ("timeouts", "{start: 5m, first_iteration: 5m, steady: 20s}", "longest time without a heartbeat"),
            ("max_memory_share", "0.97", "reject what is predicted to need more than this share of a GPU's memory"),
            ("max_run_time", "15m", "an attempt is ended after this, and not tried again"),
        ),
    ),
)  # fmt: skip
"""every key of a grid file but ``site``"""


def site_text(facts: Mapping[str, object], others: Sequence[str] = ()) -> str:
    """A site file. ``facts``: detected keys. ``others``: remarks on what else was detected."""
    known = dict(facts)
    if isinstance(seconds := known.get("pilot_time"), int):
        known["pilot_time"] = _span(seconds)
    head = ["# The site: facts about this cluster or machine. Keys without # were detected: check them."]
    return _joined([*head, *(f"# {remark}" for remark in others), *_lines(SITE, known)])


def grid_text(facts: Mapping[str, Any]) -> str:
    """A grid file that plans on the site of these facts, small enough as a first sweep."""
    values = _first_values(facts)
    lines = ["# The grid: what to measure. `sweep plan GRID --site SITE` shows its plan; change it until it fits."]
    for title, keys in GRID:
        lines += ["", f"# {title}", *_lines(keys, values)]
    return _joined(lines)


def _first_values(facts: Mapping[str, Any]) -> dict[str, Any]:
    gpus, gpu = int(facts["gpus_per_node"]), GPUS[str(facts["gpu"])]
    widest = min(int(facts.get("max_nodes", 1)), WIDEST)
    nodes = [2**power for power in range(widest.bit_length())]
    values: dict[str, Any] = {"name": "first", "nodes": nodes, "pp": [1, 2], "tp": "auto"}
    if gpu.memory_bytes is None:  # CPUs: small enough for any machine
        values |= {"models": ["tiny-1M"], "sequence_length": 128, "dtype": "fp32", "zero": [0, 3]}
        values |= {"global_batch": amount_text(128 * _sequences(gpus * nodes[-1], 16)), "micro_batch_size": [1, 2]}
        return values
    small = gpu.memory_bytes < SMALL_GPU_BYTES or gpus * gpu.memory_bytes < SMALL_NODE_BYTES
    model = "Llama-3.2-1B" if small else "Llama-3-8B"
    values |= {"models": [model], "sequence_length": 4096, "zero": [0, 1, 3], "micro_batch_size": [1, 2]}
    values |= {"recompute": ["none", "full"], "dtype": "bf16" if gpu.peak_flops("bf16") else "fp32"}
    return values | {"global_batch": amount_text(4096 * _sequences(gpus * nodes[-1], SEQUENCES))}


def _sequences(ranks: int, min_sequences: int) -> int:
    """A number of sequences that data parallelism over all ranks divides."""
    return ranks * -(-min_sequences // ranks)


def _lines(keys: Iterable[Line], known: Mapping[str, Any]) -> list[str]:
    """One line per key: with its value if known, else commented out with the example."""
    lines = []
    for key, example, meaning in keys:
        value = _inline(known[key]) if key in known else example
        text = f"{'' if key in known else '# '}{key}: {value}"
        lines.append(f"{text:{WIDTH}}  # {meaning}")
    return lines


def _inline(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(_inline(item) for item in value)}]"
    return dump({"k": value}).removeprefix("k:").strip()


def _span(seconds: int) -> str:
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
