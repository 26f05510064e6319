"""Implausible results: each record checked by itself, and against its neighbours."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

from sweep.contract import LAYOUT_NUMBERS
from sweep.outcomes import Outcome
from sweep.records.schema import Record
from sweep.records.validity import implausible

MFU_TOLERANCE = 0.05
"""allowed difference of a source's MFU from that of its own tokens/s by the stated convention"""
TFLOPS_TOLERANCE = 0.05
RATE_TOLERANCE = 0.01
MANY, MANY_SHARE = 20, 0.1
"""rows, and share of a table's, that differ from the convention by the same factor: no mistakes of single rows"""
NEIGHBOUR_FACTOR = 5.0
"""allowed factor between a run and its neighbours"""
MIN_NEIGHBOURS = 3
NEAR_DOUBLINGS = 3
"""over all axes: one axis exchanged for another at the same batch"""
_NEAR_AXES = attrgetter(*(name for name in LAYOUT_NUMBERS if name != "zero"))
_NEAR_SAME = attrgetter("model", "nodes", "gpu", "sequence_length", "dtype", "recompute")


def findings(records: Sequence[Record], flops_stated: bool = True) -> list[list[str]]:
    """What is wrong with each record, as text; empty if nothing is.

    ``flops_stated``: the records' convention is the source's own, so that its MFU and TFLOPS can be checked by it.
    """
    found = [implausible(r, r.gpu, r.dtype) + _identities(r) for r in records]
    if flops_stated:
        equal = _alike(records)
        found = [
            notes + [note for off, note in _by_convention(record) if off not in equal]
            for notes, record in zip(found, records, strict=True)
        ]
    for index, note in _out_of_line(records).items():
        found[index].append(note)
    return found


def table_notes(records: Sequence[Record]) -> list[str]:
    """What many rows of a table have in common: its source counts otherwise, which makes none of them implausible."""
    return [
        f"{number} of {len(records)} rows state {name} what their tokens/s give: the source counts FLOPs otherwise; "
        "records have the MFU of their tokens/s"
        for name, number in _alike(records).items()
    ]


def _alike(records: Sequence[Record]) -> dict[str, int]:
    """Differences from the convention that many rows share -> how many do."""
    found = Counter(off for record in records for off, _ in _by_convention(record))
    return {off: number for off, number in found.items() if number >= max(MANY, MANY_SHARE * len(records))}


def marked(records: Sequence[Record], flops_stated: bool = True) -> list[Record]:
    """The records with the findings in their ``suspect`` and ``notes``."""
    pairs = zip(records, findings(records, flops_stated), strict=True)
    return [
        replace(record, notes=[*(record.notes or []), *notes], suspect=bool(record.notes or notes))
        for record, notes in pairs
    ]


def _by_convention(record: Record) -> list[tuple[str, str]]:
    """The source's MFU, HFU and TFLOPS against its tokens/s: (by how much, what to say of it)."""
    notes = []
    for name, stated, derived in (("MFU", record.reported_mfu, record.mfu), ("HFU", record.reported_hfu, record.hfu)):
        if derived and stated and abs(stated / derived - 1) > MFU_TOLERANCE:
            convention = str(record.flops_convention).split(":")[0]
            text = f"the source states {stated:.2%} {name}, its tokens/s give {derived:.2%} ({convention})"
            notes.append((f"{name} of {stated / derived:.2f} times", f"{text}: {stated / derived - 1:+.1%}"))
    tflops = record.tflops_per_gpu
    expected = (record.tokens_per_second_per_gpu or 0.0) * (record.flops_per_token or 0.0) / 1e12
    # Sources print whole TFLOPS: half a unit is rounding.
    if tflops and expected and abs(tflops - expected) > TFLOPS_TOLERANCE * expected + 1:
        text = f"{tflops:.0f} TFLOP/s per GPU do not match its tokens/s, which give {expected:.0f}"
        notes.append((f"TFLOP/s of {tflops / expected:.2f} times", text))
    return notes


def _identities(record: Record) -> list[str]:
    """GPUs and batch against the layout; tokens/s and step time against tokens/s/GPU."""
    notes = []
    product = _product(record.dp, record.tp, record.pp, record.cp)
    if product != record.gpus:
        notes.append(f"dp*tp*pp*cp = {product}, not the {record.gpus} GPUs")
    tokens = _product(record.dp, record.micro_batch_size, record.grad_accum, record.sequence_length)
    stated = record.global_batch_tokens
    if stated is not None and stated != tokens:
        notes.append(
            f"dp*micro_batch_size*grad_accum*sequence_length = {tokens:,}, not the {stated:,} tokens of the batch"
        )
    rate, gpus = record.tokens_per_second_per_gpu, record.gpus
    if not rate or not gpus or record.outcome is not Outcome.OK:
        return notes
    total, step = record.tokens_per_second, record.step_time_median_s
    if total and abs(total / gpus / rate - 1) > RATE_TOLERANCE and abs(total / gpus - rate) > 1:
        notes.append(f"{total:,.0f} tokens/s over {gpus} GPUs are not {rate:,.0f} tokens/s/GPU")
    if step and stated and abs(stated / step / gpus / rate - 1) > TFLOPS_TOLERANCE:
        notes.append(f"a step of {step:.3g} s is not {rate:,.0f} tokens/s/GPU")
    return notes


def _product(*factors: int | None) -> int:
    return math.prod(1 if factor is None else factor for factor in factors)


def _out_of_line(records: Sequence[Record]) -> dict[int, str]:
    """Rates far from those of neighbours: same model, nodes and kind, NEAR_DOUBLINGS away at most.

    A good layout may have slow neighbours: what is too fast shows in its MFU, and only where that is not known here.
    """
    groups: dict[Hashable, dict[int, float]] = {}
    for index, record in enumerate(records):
        if (rate := record.tokens_per_second_per_gpu or 0.0) > 0 and record.outcome is Outcome.OK:
            groups.setdefault(_NEAR_SAME(record), {})[index] = rate
    found = {}
    for members in groups.values():
        where = np.log2([[max(width or 1, 1) for width in _NEAR_AXES(records[index])] for index in members])
        rates = np.log(list(members.values()))
        for place, index in enumerate(members):
            distance = np.abs(where - where[place]).sum(axis=1)
            near = np.flatnonzero((distance <= NEAR_DOUBLINGS) & (np.arange(len(members)) != place))
            off = rates[place] - np.median(rates[near]) if len(near) >= MIN_NEIGHBOURS else 0.0
            if off > 0 and records[index].mfu is not None:
                continue
            if abs(off) > np.log(NEIGHBOUR_FACTOR):
                word = "slower" if off < 0 else "faster"
                found[index] = f"{np.exp(abs(off)):.1f} times {word} than the median of its {len(near)} neighbours"
    return found
