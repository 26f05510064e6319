"""Results that cannot be true: each record judged by itself, and by its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sweep.physics.hardware import best_matmul_share
from sweep.records.record import implausible

MFU_TOLERANCE = 0.05
"""by how much the source's MFU may differ from that of its own tokens/s by the stated convention"""
TFLOPS_TOLERANCE = 0.05
RATE_TOLERANCE = 0.01
NEIGHBOUR_FACTOR = 5.0
"""how many times slower or faster than its neighbours a run may be"""
LEAST_NEIGHBOURS = 3
NEAR_DOUBLINGS = 3
"""over all axes: one axis traded for another at the same batch"""
_NEAR_AXES = ("dp", "tp", "pp", "cp", "ep", "micro_batch_size", "grad_accum")


def judge(records: Sequence[dict[str, Any]], flops_stated: bool = True) -> list[list[str]]:
    """What is wrong with each record, in words; empty where nothing is.

    ``flops_stated``: the records' convention is the source's own, so that its MFU and TFLOPS can be checked by it.
    """
    found = [implausible(record) + _utilisation(record) + _identities(record) + _rates(record) for record in records]
    if flops_stated:
        found = [notes + _by_convention(record) for notes, record in zip(found, records, strict=True)]
    for index, note in _out_of_line(records).items():
        found[index].append(note)
    return found


def mark(records: Sequence[dict[str, Any]], flops_stated: bool = True) -> int:
    """Write the findings into ``suspect`` and ``notes`` of the records; how many have any."""
    count = 0
    for record, notes in zip(records, judge(records, flops_stated), strict=True):
        record["notes"] = [*(record.get("notes") or []), *notes]
        record["suspect"] = bool(record["notes"])
        count += record["suspect"]
    return count


def _utilisation(record: Mapping[str, Any]) -> list[str]:
    """MFU and HFU against what a matrix product reaches."""
    notes = []
    best = best_matmul_share(record.get("gpu"))
    for name in ("mfu", "hfu", "reported_mfu"):
        value = record.get(name)
        if value is not None and best < value <= 1:
            notes.append(f"{name} is {value:.1%}: the best matrix product on {record.get('gpu')} reaches {best:.0%}")
    return notes


def _by_convention(record: Mapping[str, Any]) -> list[str]:
    """The source's MFU and TFLOPS against its tokens/s."""
    notes = []
    mfu, said = record.get("mfu"), record.get("reported_mfu")
    if mfu and said and abs(said / mfu - 1) > MFU_TOLERANCE:
        convention = str(record.get("flops_convention")).split(":")[0]
        notes.append(
            f"the source says {said:.2%} MFU, its tokens/s give {mfu:.2%} ({convention}): {said / mfu - 1:+.1%}"
        )
    rate = record.get("tokens_per_second_per_gpu") or 0.0
    tflops, expected = record.get("tflops_per_gpu"), rate * (record.get("flops_per_token") or 0) / 1e12
    # Sources print whole TFLOPS: half a unit is rounding.
    if tflops and expected and abs(tflops - expected) > TFLOPS_TOLERANCE * expected + 1:
        notes.append(f"{tflops:.0f} TFLOP/s per GPU do not match its tokens/s, which give {expected:.0f}")
    return notes


def _identities(record: Mapping[str, Any]) -> list[str]:
    notes = []
    product = record["dp"] * record["tp"] * record["pp"] * record["cp"]
    if product != record["gpus"]:
        notes.append(f"dp*tp*pp*cp = {product}, not the {record['gpus']} GPUs")
    tokens = record["dp"] * record["micro_batch_size"] * record["grad_accum"] * record["sequence_length"]
    said = record.get("global_batch_tokens")
    if said is not None and said != tokens:
        notes.append(
            f"dp*micro_batch_size*grad_accum*sequence_length = {tokens:,}, not the {said:,} tokens of the batch"
        )
    return notes


def _rates(record: Mapping[str, Any]) -> list[str]:
    """Tokens/s and step time against tokens/s/GPU."""
    rate = record.get("tokens_per_second_per_gpu")
    if not rate or record.get("outcome") != "ok":
        return []
    notes = []
    total = record.get("tokens_per_second")
    if total and abs(total / record["gpus"] / rate - 1) > RATE_TOLERANCE and abs(total / record["gpus"] - rate) > 1:
        notes.append(f"{total:,.0f} tokens/s over {record['gpus']} GPUs are not {rate:,.0f} tokens/s/GPU")
    step = record.get("step_time_median_s")
    if step and abs(record["global_batch_tokens"] / step / record["gpus"] / rate - 1) > TFLOPS_TOLERANCE:
        notes.append(f"a step of {step:.3g} s is not {rate:,.0f} tokens/s/GPU")
    return notes


def _out_of_line(records: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Rates far off those of neighbours: same model, nodes and kind, NEAR_DOUBLINGS away at most."""
    groups: dict[Any, list[int]] = {}
    for index, record in enumerate(records):
        if record.get("tokens_per_second_per_gpu") and record.get("outcome") == "ok":
            key = tuple(record[name] for name in ("model", "nodes", "gpu", "sequence_length", "dtype", "recompute"))
            groups.setdefault(key, []).append(index)
    found = {}
    for members in groups.values():
        where = np.log2([[_axis(records[i], axis) for axis in _NEAR_AXES] for i in members])
        rates = np.log([records[i]["tokens_per_second_per_gpu"] for i in members])
        for place, index in enumerate(members):
            distance = np.abs(where - where[place]).sum(axis=1)
            near = np.flatnonzero((distance <= NEAR_DOUBLINGS) & (np.arange(len(members)) != place))
            off = rates[place] - np.median(rates[near]) if len(near) >= LEAST_NEIGHBOURS else 0.0
            if abs(off) > np.log(NEIGHBOUR_FACTOR):
                word = "slower" if off < 0 else "faster"
                found[index] = f"{np.exp(abs(off)):.1f} times {word} than the median of its {len(near)} neighbours"
    return found


def _axis(record: Mapping[str, Any], axis: str) -> float:
    return float(max(record.get(axis) or 1, 1))
