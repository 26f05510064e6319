"""Synthetic clusters with the truth known: grids, step times, memory, failures, noise, all drawn from wide priors.

They share no formula or constant with `sweep`: efficiency curves, collectives, pipelines and memory are written here
again, with effects that the product's model lacks (waves of tiles, stragglers, host time per message, interactions of
pairs of axes, single values that some build handles badly). A cluster is a function of its seed.

The priors are meant to cover clusters from a few desktop cards on Ethernet to current data centres, and trainers from
careful to careless; each range is stated where it is drawn. They were written before the search that is judged on them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.outcomes import Outcome
from sweep.physics.hardware import Gpu
from sweep.physics.shapes import ModelShape
from sweep.search.candidates import from_configurations
from sweep.search.saving import RecordedRun, promising_order

EVALUATION_SEEDS = tuple(range(20_000, 20_100))
"""judged on; not to be looked at one by one while a search is written. All below are there to look at"""
LEAST_RUNS, MOST_RUNS, LEAST_IN_CELL = 100, 1500, 24
USUAL_IN_CELL = 60
"""cells of a grid are at most its runs over this"""
LEAST_FEASIBLE = 0.15
"""a user gives models that fit: grids of which fewer runs can work are drawn again"""
AXES = ("tp", "pp", "cp", "zero", "micro_batch_size", "recompute")
CHANCE = (Outcome.UNKNOWN, Outcome.NODE_FAIL, Outcome.NCCL_TIMEOUT, Outcome.HANG, Outcome.PYTHON_EXCEPTION)

Floats = npt.NDArray[np.float64]
Columns = dict[str, Any]
Random = np.random.Generator


@dataclass(frozen=True)
class SyntheticCluster:
    """A recorded sweep and the truth behind it; arrays in the order of the candidates."""

    seed: int
    recorded: RecordedRun
    true_rates: Floats
    """tokens/s/GPU without noise, also of runs that fail"""
    doomed: npt.NDArray[np.bool_]
    """fails whenever it is tried: out of memory, or a layout that this trainer cannot run"""
    oom: npt.NDArray[np.bool_]
    oom_stated: bool
    """an out-of-memory is recorded as such; otherwise as a failure of unknown cause"""
    spread: float
    """of repeated runs, of the logarithm"""
    disturbed: float
    """share of runs that something slows down"""

    def again(self, r: Random, rows: npt.NDArray[np.int64]) -> Floats:
        """Rates of further runs of some candidates, each with noise of its own."""
        noise = np.exp(r.normal(0, self.spread, len(rows)))
        return self.true_rates[rows] / _disturbed(r, noise, r.random(len(rows)) < self.disturbed)


def synthetic_cluster(seed: int) -> SyntheticCluster:
    """The cluster of a seed."""
    for attempt in range(100):
        found = _drawn(seed, np.random.default_rng([41_017, seed, attempt]))
        if found is not None and (~found.doomed).mean() >= LEAST_FEASIBLE:
            return found
    raise AssertionError("no feasible cluster")


def _drawn(seed: int, r: Random) -> SyntheticCluster | None:
    cluster, trainer = _cluster(r), _trainer(r)
    configurations = _grid(r, cluster)
    if configurations is None:
        return None
    c = _columns(configurations)
    true = _seconds(c, cluster, trainer) * _interactions(r, _codes(c))
    tokens = c["dp"] * c["micro_batch_size"] * c["grad_accum"] * c["sequence_length"]
    rates = tokens / true / (c["nodes"] * c["gpus_per_node"])
    peak = _peak_bytes(c, trainer)
    oom = peak > cluster["memory"] * trainer["usable"]
    doomed = oom | _cannot_run(r, c)
    noise, spread, disturbed = _noise(r, len(rates))
    chance = r.random(len(rates)) < (0.0 if r.random() < 0.3 else r.uniform(0.0, 0.08))
    stated = bool(r.random() < 0.7)
    outcomes = tuple(
        (Outcome.OOM_CUDA if stated else Outcome.UNKNOWN) if full
        else CHANCE[int(r.integers(len(CHANCE)))] if failed else Outcome.OK
        for full, failed in zip(oom, doomed | chance, strict=True)
    )  # fmt: skip
    ok = np.array([outcome is Outcome.OK for outcome in outcomes])
    seconds = trainer["start_s"] + np.where(ok, 8 * true, true)
    return _ordered(
        SyntheticCluster(
            seed,
            RecordedRun(
                from_configurations([f"cluster-{_digest(seed, i)}" for i in range(len(c["dp"]))], configurations,
                                    _data_sheet(cluster)),
                outcomes, np.where(ok, rates / noise, np.nan), np.where(ok, peak, np.nan), seconds,
            ),
            rates, doomed, oom, stated, spread, disturbed,
        ),
        configurations,
    )  # fmt: skip


def _ordered(made: SyntheticCluster, configurations: Sequence[Columns]) -> SyntheticCluster:
    """In the order of a plan, as a plan's rows."""
    recorded = made.recorded
    order = promising_order(recorded.candidates)
    ids = recorded.candidates.ids
    found = from_configurations([ids[i] for i in order], [configurations[i] for i in order], recorded.candidates.gpu)
    assert recorded.seconds is not None
    again = RecordedRun(
        replace(found, planned=True),
        tuple(recorded.outcomes[i] for i in order),
        recorded.tokens_per_second_per_gpu[order],
        recorded.peak_memory_bytes[order],
        recorded.seconds[order],
    )
    return replace(
        made, recorded=again, true_rates=made.true_rates[order], doomed=made.doomed[order], oom=made.oom[order]
    )


def _log_uniform(r: Random, low: float, high: float) -> float:
    return float(np.exp(r.uniform(np.log(low), np.log(high))))


def _cluster(r: Random) -> dict[str, float]:
    """GPUs from consumer cards to the next generation; networks from 10 GbE shared by a node to NVLink domains."""
    per_node = float(r.choice([4, 8, 8, 8]))
    inside = _log_uniform(r, 12e9, 900e9)
    return {
        "per_node": per_node,
        "flops": _log_uniform(r, 60e12, 2000e12),
        "memory": float(r.choice([24, 40, 48, 64, 80, 96, 141, 192])) * 1e9,
        "memory_speed": _log_uniform(r, 0.8e12, 8e12),
        "inside": inside,
        "inside_latency": _log_uniform(r, 4e-6, 60e-6),
        "network": min(_log_uniform(r, 1e9, 100e9), inside),
        "network_latency": _log_uniform(r, 10e-6, 300e-6),
        "congestion": r.uniform(0.0, 0.35),  # bandwidth falls as nodes to this power
        "jitter": _log_uniform(r, 1e-3, 0.03),  # a synchronous step waits for the slowest: grows with log of nodes
        "wave": _log_uniform(r, 64, 264),  # tiles that run at once
        "tile": float(r.choice([64, 128, 256])),
    }


def _trainer(r: Random) -> dict[str, Any]:
    """From one compiled program to eager Python with blocking messages."""
    return {
        "peak_share": r.uniform(0.35, 0.85),
        "saturation": _log_uniform(r, 200, 6000),  # rows where the kernels' speed reaches 63 %
        "sharpness": r.uniform(0.5, 1.3),
        "kernel_s": _log_uniform(r, 3e-6, 40e-6),
        "kernels": r.uniform(12, 60),  # per layer and pass
        "pointwise": r.uniform(4, 40),  # passes over the activations of a layer, in memory traffic
        "step_s": _log_uniform(r, 2e-3, 0.3),
        "micro_batch_s": _log_uniform(r, 5e-5, 2e-2),
        "message_s": _log_uniform(r, 2e-5, 2e-2),  # host time of one send or receive between stages
        "tp_overlap": r.uniform(0.0, 0.7),
        "dp_overlap": r.uniform(0.0, 0.95),
        "zero_overlap": r.uniform(0.0, 0.95),
        "zero_fixed_s": _log_uniform(r, 1e-5, 3e-3),  # per layer and gather
        "accumulate_in_place": bool(r.random() < 0.5),  # otherwise stages 2 and 3 reduce with each micro-batch
        "gather_again": bool(r.random() < 0.6),  # stage 3 gathers again for each micro-batch
        "imbalance": r.uniform(0.0, 0.4),  # the last stage's extra share, in layers per 100k vocabulary and 4k width
        "bubble": r.uniform(0.7, 1.5),
        "optimizer_passes": r.uniform(6, 40),
        "full_recompute": r.uniform(0.24, 0.42),
        "selective_recompute": r.uniform(0.01, 0.1),
        "attention_waste": r.uniform(1.0, 3.0),
        "bytes_sharded": r.uniform(8, 16),
        "bytes_gradient": float(r.choice([2, 4])),
        "activation": r.uniform(12, 50),  # bytes per token, layer and width without recomputation
        "activation_unsharded": r.uniform(0.0, 0.4),  # the part that tp does not divide
        "logits": r.uniform(4, 14),  # bytes per token and vocabulary entry
        "buffers": r.uniform(0.5e9, 5e9),
        "usable": r.uniform(0.86, 0.97),
        "start_s": _log_uniform(r, 10, 60),
    }


def _data_sheet(cluster: dict[str, float]) -> Gpu:
    """What the user's site says of the GPU: the maker's figures, its network not."""
    return Gpu(
        name="synthetic",
        peaks_flops={"bf16": cluster["flops"]},
        memory_bytes=int(cluster["memory"]),
        memory_bytes_per_s=cluster["memory_speed"],
        link_bytes_per_s=2 * cluster["inside"],
    )


def _grid(r: Random, cluster: dict[str, float]) -> list[Columns] | None:
    """Complete products of axes, thinned value by value to the drawn size; some values are not powers of two."""
    target = int(_log_uniform(r, LEAST_RUNS, MOST_RUNS))
    for _ in range(200):
        most_cells = max(1, min(12, target // USUAL_IN_CELL))
        cells = int(r.integers(1, most_cells + 1))
        models = int(r.integers(1, min(3, cells) + 1))
        widths = sorted(r.choice([1, 2, 4, 8, 16, 32, 64], size=min(7, max(1, cells // models)), replace=False))
        axes = _axes(r, cluster)
        found = []
        for number in range(models):
            shape, sequence = _shape(r, cluster), int(r.choice([1024, 2048, 4096, 4096, 8192, 16384]))
            batch = int(2 ** r.integers(5, 11)) * int(r.choice([1, 1, 1, 3]))
            for nodes in widths:
                found += _cell(axes, shape, sequence, batch, int(nodes), f"m{number}", cluster, r,
                               target // (models * len(widths)))  # fmt: skip
        sizes = Counter((one["model"], one["nodes"]) for one in found).values()
        if LEAST_RUNS <= len(found) <= MOST_RUNS and min(sizes) >= LEAST_IN_CELL:
            return found
    return None  # on this cluster hardly any grid has the wanted size


def _axes(r: Random, cluster: dict[str, float]) -> dict[str, list[Any]]:
    powers = [1, 2, 4, 8, 16]
    odd = bool(r.random() < 0.25)
    return {
        "tp": [tp for tp in powers if tp <= cluster["per_node"] * (2 if r.random() < 0.4 else 1)],
        "pp": sorted({*powers[: int(r.integers(1, 6))], *([3, 6] if odd else [])}),
        "cp": [1, 2] if r.random() < 0.2 else [1],
        "zero": [[0], [0, 1], [0, 1, 3], [0, 1, 2, 3], [1, 3], [0, 3]][int(r.integers(6))],
        "micro_batch_size": sorted({1, 2, 4, 8, 16, *([3, 5, 6] if odd else [])})[: int(r.integers(3, 7))],
        "recompute": [["none"], ["none", "full"], ["none", "selective", "full"], ["full"]][int(r.integers(4))],
    }


def _shape(r: Random, cluster: dict[str, float]) -> ModelShape:
    """Models whose weights alone take between 1/100 of a GPU's memory and four GPUs'."""
    for _ in range(1000):
        head = int(r.choice([64, 128]))
        hidden = int(r.choice([1024, 1536, 2048, 3072, 4096, 5120, 6144, 8192]))
        layers = int(r.choice([12, 16, 24, 28, 32, 36, 40, 48, 64, 80]))
        vocabulary = int(r.choice([32_000, 50_304, 128_256, 151_936]))
        gated = bool(r.random() < 0.7)
        inner = int(hidden * (r.choice([2.75, 3.5]) if gated else 4)) // 256 * 256
        heads = hidden // head
        groups = heads // int(r.choice([1, 1, 4, 8]))
        made = ModelShape(
            num_layers=layers, hidden_size=hidden, num_heads=heads, num_kv_heads=max(groups, 1),
            intermediate_size=inner, vocab_size=vocabulary, gated_mlp=gated, tied_embeddings=bool(r.random() < 0.3),
        )  # fmt: skip
        weights = 2.0 * (layers * _per_layer(made) + 2 * vocabulary * hidden)
        if heads % max(groups, 1) == 0 and 0.01 < weights / cluster["memory"] < 4:
            return made
    raise AssertionError("no model of the wanted size")


def _per_layer(shape: ModelShape) -> float:
    kv = shape.num_kv_heads * shape.head_dim
    matrices = 3 if shape.gated_mlp else 2
    return shape.hidden_size * (2.0 * shape.hidden_size + 2.0 * kv + matrices * shape.intermediate_size)


def _cell(
    axes: dict[str, list[Any]], shape: ModelShape, sequence: int, batch: int, nodes: int, model: str,
    cluster: dict[str, float], r: Random, most: int,
) -> list[Columns]:  # fmt: skip
    """The legal layouts of one (model, nodes); values of the longest axes are dropped until few enough are left."""
    axes = {name: list(values) for name, values in axes.items()}
    gpus = int(nodes * cluster["per_node"])
    batch = max(batch, gpus)  # sequences; a larger cluster takes a larger batch
    while True:
        found = [
            layout
            for values in product(*axes.values())
            if (layout := _layout(dict(zip(AXES, values, strict=True)), shape, gpus, batch)) is not None
        ]
        if len(found) <= most or all(len(values) <= 1 for values in axes.values()):
            break
        longest = max(axes, key=lambda name: (len(axes[name]), name))
        axes[longest].pop(int(r.integers(len(axes[longest]))))
    return [
        {
            "workload": "somebody", "model": model, "shape": shape.as_dict(), "nodes": nodes,
            "gpus_per_node": int(cluster["per_node"]), "sequence_length": sequence, "layout": layout,
            "dtype": "bf16", "compile": False, "repeat": 0, "params": {}, "env": {},
        }
        for layout in found
    ]  # fmt: skip


def _layout(v: Columns, shape: ModelShape, gpus: int, batch: int) -> Columns | None:
    ways = v["tp"] * v["pp"] * v["cp"]
    if gpus % ways or shape.num_heads % v["tp"] or v["pp"] > shape.num_layers:
        return None
    if shape.num_kv_heads % v["tp"] and v["tp"] % shape.num_kv_heads:
        return None
    dp = gpus // ways
    if (dp == 1 and v["zero"]) or batch % (dp * v["micro_batch_size"]):
        return None
    gas = batch // (dp * v["micro_batch_size"])
    if gas < v["pp"] - 1:
        return None
    return {**v, "dp": dp, "ep": 1, "grad_accum": gas, "pp_schedule": "1f1b"}


def _columns(configurations: Sequence[Columns]) -> Columns:
    names = (*AXES, "dp", "grad_accum")
    found = {name: np.array([one["layout"][name] for one in configurations]) for name in names}
    for name in ("nodes", "gpus_per_node", "sequence_length", "model"):
        found[name] = np.array([one[name] for one in configurations])
    for name in ("num_layers", "hidden_size", "intermediate_size", "vocab_size", "num_kv_heads", "head_dim"):
        found[name] = np.array([float(one["shape"][name]) for one in configurations])
    found["matrices"] = np.array([3.0 if one["shape"]["gated_mlp"] else 2.0 for one in configurations])
    found["heads_total"] = np.array([1.0 if one["shape"]["tied_embeddings"] else 2.0 for one in configurations])
    return found


def _layer_parameters(c: Columns) -> Any:
    kv = c["num_kv_heads"] * c["head_dim"]
    return c["hidden_size"] * (2 * c["hidden_size"] + 2 * kv + c["matrices"] * c["intermediate_size"])


def _kernel_speed(rows: Any, width: Any, k: dict[str, float], t: dict[str, Any]) -> Any:
    """Share of the peak: a stretched exponential in the rows, times how full the last wave of tiles is."""
    filled = 1 - np.exp(-((rows / t["saturation"]) ** t["sharpness"]))
    tiles = np.ceil(rows / k["tile"]) * np.ceil(width / k["tile"])
    return t["peak_share"] * filled * (tiles / k["wave"]) / np.ceil(tiles / k["wave"])


def _ring_s(moved: Any, ranks: Any, speed: Any, latency: Any) -> Any:
    """One pass around a ring: all but one of the pieces, and a latency that grows with the logarithm of the ranks."""
    return np.where(ranks > 1, moved * (1 - 1 / ranks) / speed + latency * np.ceil(np.log2(np.maximum(ranks, 2))), 0.0)


def _seconds(c: Columns, k: dict[str, float], t: dict[str, Any]) -> Floats:
    """Seconds of a step: the slowest stage's micro-batches, the bubble, what data parallelism and optimizer add."""
    rows = c["micro_batch_size"] * c["sequence_length"] / c["cp"]
    network = k["network"] / c["nodes"] ** k["congestion"]
    layer = _layer_s(c, rows, network, k, t)
    vocabulary = t["imbalance"] * c["vocab_size"] / 1e5 * 4096 / c["hidden_size"] + 0.02 * c["num_layers"]
    stage = np.ceil(c["num_layers"] / c["pp"]) + vocabulary
    micro = layer * stage + t["micro_batch_s"] + _send_s(c, rows, network, k, t)
    piped = micro * (c["grad_accum"] + t["bubble"] * (c["pp"] - 1))
    whole = piped + _data_s(c, micro * 0.6, network, k, t) + _update_s(c, k, t) + t["step_s"]
    found: Floats = whole * (1 + k["jitter"] * np.log2(c["nodes"] * c["gpus_per_node"]))
    return found


def _layer_s(c: Columns, rows: Any, network: Any, k: dict[str, float], t: dict[str, Any]) -> Any:
    """Forward, backward and recomputation of one layer for one micro-batch on one rank."""
    speed = np.maximum(_kernel_speed(rows, c["intermediate_size"] / c["tp"], k, t), 1e-3) * k["flops"]
    products = 6 * rows * _layer_parameters(c) / c["tp"] / speed
    attention = 6 * rows * c["sequence_length"] * c["hidden_size"] / c["tp"] / (0.3 * k["flops"]) * t["attention_waste"]
    traffic = t["pointwise"] * 2 * rows * c["hidden_size"] / np.sqrt(c["tp"]) / k["memory_speed"]
    again = np.where(c["recompute"] == "full", t["full_recompute"],
                     np.where(c["recompute"] == "selective", t["selective_recompute"], 0.0))  # fmt: skip
    busy = np.maximum((products + attention + traffic) * (1 + again), 2 * t["kernels"] * t["kernel_s"])
    across = c["tp"] * c["cp"] > c["gpus_per_node"]
    speed, latency = np.where(across, network, k["inside"]), np.where(across, k["network_latency"], k["inside_latency"])
    moved = 2.0 * rows * c["hidden_size"]
    tensor = 8 * _ring_s(moved, c["tp"], speed, latency) * (1 + again)
    context = 4 * _ring_s(moved * c["cp"], c["cp"], speed, latency)
    return busy + (1 - t["tp_overlap"]) * tensor + 0.5 * context


def _send_s(c: Columns, rows: Any, network: Any, k: dict[str, float], t: dict[str, Any]) -> Any:
    across = c["tp"] * c["cp"] * c["dp"] >= c["gpus_per_node"]
    moved = 2.0 * rows * c["hidden_size"] / c["tp"]
    each = moved / np.where(across, network, k["inside"]) + t["message_s"]
    return np.where(c["pp"] > 1, 2 * each, 0.0)


def _data_s(c: Columns, backward: Any, network: Any, k: dict[str, float], t: dict[str, Any]) -> Any:
    """Gradients and weights between replicas, less what the backward pass hides of them."""
    ranks, layers = c["dp"] * c["cp"], np.ceil(c["num_layers"] / c["pp"])
    mine = (layers * _layer_parameters(c) + c["vocab_size"] * c["hidden_size"]) / c["tp"]
    across = c["nodes"] > 1
    speed = np.where(across, network, k["inside"])
    latency = np.where(across, k["network_latency"], k["inside_latency"]) * np.sqrt(layers)
    one_way = _ring_s(2 * mine, ranks, speed, latency)
    each = (c["zero"] >= 2) & np.logical_not(t["accumulate_in_place"])
    gradients = one_way * np.where(c["zero"] == 0, 2, 1) * np.where(each, c["grad_accum"], 1)
    hidden = t["dp_overlap"] * backward * np.where(each, c["grad_accum"], 1)
    gathers = np.where(c["zero"] == 3, np.where(t["gather_again"], 2 * c["grad_accum"], 2), 1) * (c["zero"] >= 1)
    weights = gathers * (one_way + t["zero_fixed_s"] * layers * (c["zero"] == 3))
    shown = np.maximum(weights - np.where(c["zero"] == 3, t["zero_overlap"] * backward * c["grad_accum"], 0), 0)
    return np.maximum(gradients - hidden, 0.05 * gradients) + np.maximum(shown, 0.05 * weights)


def _update_s(c: Columns, k: dict[str, float], t: dict[str, Any]) -> Any:
    mine = (np.ceil(c["num_layers"] / c["pp"]) * _layer_parameters(c) + c["vocab_size"] * c["hidden_size"]) / c["tp"]
    return t["optimizer_passes"] * mine / np.where(c["zero"] > 0, c["dp"], 1) / k["memory_speed"]


def _peak_bytes(c: Columns, t: dict[str, Any]) -> Floats:
    """Of the heaviest stage: states, activations of the micro-batches in flight, logits, buffers."""
    layers = np.ceil(c["num_layers"] / c["pp"])
    ends = c["vocab_size"] * c["hidden_size"] * np.where(c["pp"] > 1, 1, c["heads_total"])
    mine = (layers * _layer_parameters(c) + ends) / c["tp"]
    ways = c["dp"] * c["cp"]
    share = [np.where(c["zero"] >= stage, 1 / ways, 1.0) for stage in (1, 2, 3)]
    states = mine * (t["bytes_sharded"] * share[0] + t["bytes_gradient"] * share[1] + 2 * share[2])
    rows = c["micro_batch_size"] * c["sequence_length"] / c["cp"]
    part = t["activation_unsharded"] + (1 - t["activation_unsharded"]) / c["tp"]
    selected = np.where(c["recompute"] == "full", 2.0 * part,
                    np.where(c["recompute"] == "selective", 0.65 * t["activation"] * part,
                             t["activation"] * part))  # fmt: skip
    flight = np.minimum(c["grad_accum"], c["pp"])
    activations = rows * c["hidden_size"] * layers * selected * flight
    found: Floats = states + activations + t["logits"] * rows * c["vocab_size"] / c["tp"] + t["buffers"]
    return found


def _codes(c: Columns) -> dict[str, npt.NDArray[np.int64]]:
    """Each candidate's value of each axis as a number, and that of its cell."""
    cells = [f"{m}/{n}" for m, n in zip(c["model"], c["nodes"], strict=True)]
    values = {name: c[name] for name in AXES} | {"cell": cells}
    return {name: np.unique(value, return_inverse=True)[1].ravel() for name, value in values.items()}


def _interactions(r: Random, codes: dict[str, npt.NDArray[np.int64]]) -> Floats:
    """What no formula has: a factor per value of each axis, per pair of values, per cell and axis; single bad values.

    Scales of the logarithms: up to 0.1 per axis, 0.08 per pair of axes, 0.05 between cells; in half of the clusters one
    to three values, or pairs of values, cost 1.1 to 3 times.
    """
    log, cells = np.zeros(len(codes["cell"])), codes["cell"]
    single, paired, local = (r.uniform(0, top) for top in (0.1, 0.08, 0.05))
    for name in AXES:
        log += r.normal(0, single, 64)[codes[name]]
        log += r.normal(0, local, (64, 64))[cells, codes[name]]
    for i, first in enumerate(AXES):
        for second in AXES[:i]:
            if r.random() < 0.4:
                log += r.normal(0, paired, (64, 64))[codes[first], codes[second]]
    log += r.normal(0, r.uniform(0, 0.1), 64)[cells]
    for _ in range(int(r.integers(1, 4)) if r.random() < 0.5 else 0):
        names = r.choice(AXES, size=int(r.integers(1, 3)), replace=False)
        hit = np.ones(len(log), dtype=bool)
        for name in names:
            values = np.unique(codes[name])
            hit &= codes[name] == (r.choice(values[1:]) if len(values) > 1 else values[0])
        log += np.where(hit, np.log(_log_uniform(r, 1.1, 3.0)), 0.0)
    found: Floats = np.exp(log)
    return found


def _cannot_run(r: Random, c: Columns) -> npt.NDArray[np.bool_]:
    """In three clusters of ten: pairs of values that this trainer cannot run."""
    found: npt.NDArray[np.bool_] = np.zeros(len(c["dp"]), dtype=bool)
    if r.random() < 0.3:
        for _ in range(int(r.integers(1, 3))):
            first, second = r.choice(AXES, size=2, replace=False)
            hit = (c[first] == r.choice(np.unique(c[first]))) & (c[second] == r.choice(np.unique(c[second])))
            found |= hit & (hit.mean() < 0.3)
    return found


def _noise(r: Random, size: int) -> tuple[Floats, float, float]:
    """Of repeated runs 0.3 to 3 %, and in half of the clusters up to 5 % of disturbed runs; and both."""
    spread = _log_uniform(r, 0.003, 0.03)
    noise, chances = np.exp(r.normal(0, spread, size)), r.random(size)
    share = float(r.uniform(0, 0.05)) if r.random() < 0.5 else 0.0
    return _disturbed(r, noise, chances < share), spread, share


def _disturbed(r: Random, noise: Floats, disturbed: npt.NDArray[np.bool_]) -> Floats:
    """Disturbed runs take 1.1 to 4 times as long."""
    found: Floats = np.where(disturbed, noise * np.exp(r.uniform(np.log(1.1), np.log(4), len(noise))), noise)
    return found


def _digest(seed: int, place: int) -> str:
    return hashlib.sha256(f"{seed}/{place}".encode()).hexdigest()[:16]
