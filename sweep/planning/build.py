"""The whole way from a grid and a site to the plan: all candidates of all cells, chunk by chunk, in one table."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sweep.contract import LAYOUT, LAYOUT_NUMBERS, Layout, Rule, Run, Workload
from sweep.errors import Mistake, SweepError
from sweep.inputs.check import problems_of
from sweep.inputs.grid import Grid
from sweep.inputs.site import Site
from sweep.inputs.validation import amount_text
from sweep.inputs.yaml_lines import Path
from sweep.planning.expand import CHUNK, AxisProduct, Columns, Indices, chunks, products
from sweep.planning.predict import FITS, NO_CHANCE, TOO_LONG, Physics, costs, order
from sweep.planning.reasons import broken_by, listed, reason_numbers
from sweep.planning.rules import included, rules_for
from sweep.planning.runs import ASSUMED_START_S, Plan
from sweep.planning.table import (
    SCHEMA,
    WORDS,
    Words,
    candidates,
    integers,
    lists,
    numbers,
    plain_candidates,
    table_of,
    texts,
    typed,
    words,
)
from sweep.plugins import WORKLOAD

_OFFERED = 3
MAX_CANDIDATES, LEAST_PER_CELL = 10_000_000, 1_000
"""A plan in memory has 220 bytes per candidate and takes a second per 1.5 million (`benchmarks/plan_speed.py`); each
cell takes a millisecond. So the bound is 2.2 GB and some ten seconds"""
MAX_RUNS = 500_000
"""3.4 kB and 40 microseconds each, so 1.7 GB; at 20 s per run, they would take one pilot four months"""


def nothing_to_run(grid: Grid) -> Mistake:
    """The mistake of a grid whose candidates are all rejected."""
    return grid.mistake("no candidate of this grid can work", (), "`sweep plan GRID --show rejected` shows why")


def build(grid: Grid, site: Site, workload: Workload | None = None) -> Plan:
    """The plan. ``workload``: the declaration, by default that of the name in the grid.

    Raises SweepError if the grid asks for what the workload or the site does not support or for too many candidates,
    if no layout at all has the global batch, and if two runs have the same run_id.
    """
    workload = workload or _declared(grid)
    if problems := problems_of(grid, site, workload):
        raise SweepError(grid.located(problems))
    parts = _expanded(grid, site, workload)
    refuse_impossible_batch(grid, [product for _, expanded in parts for product in expanded])
    builder = Builder(grid, workload.name)
    for part, expanded in parts:
        builder.use(part, rules_for(grid, part, workload))
        for product in expanded:
            for columns in chunks(product):
                builder.add(product, columns)
    return Plan(grid.name, builder.table())


def _expanded(grid: Grid, site: Site, workload: Workload) -> list[tuple[Site, list[AxisProduct]]]:
    """The products of each node group's nodes. Raises SweepError, at once, for more than a plan may have."""
    parts: list[tuple[Site, list[AxisProduct]]] = []
    cells = candidates = 0
    for group, part in site.parts.items():
        parts.append((part, []))
        for last in products(grid, part, workload, group):
            cells, candidates = cells + 1, candidates + max(last.size, LEAST_PER_CELL)
            if candidates > MAX_CANDIDATES:
                longest = sorted(last.axes.items(), key=lambda axis: -len(axis[1]))[:12]
                axes = " * ".join(f"{len(values)} {name}" for name, values in longest if len(values) > 1)
                size = f"{last.size:,}" if last.size <= 10**15 else "over 10^15"
                cell = (
                    f"{last.row} on {last.nodes} node{'s' * (last.nodes != 1)} has {size}{f': {axes}' if axes else ''}"
                )
                most = f"{MAX_CANDIDATES:,} candidates, each cell counted as {LEAST_PER_CELL:,} or more"
                fact = f"this plan is too large, by cell {cells:,} of it: at most {most}; {cell}"
                raise SweepError(grid.mistake(fact, (), "fewer values per axis, or several grids"))
            parts[-1][1].append(last)
    return parts


def _declared(grid: Grid) -> Workload:
    try:
        return WORKLOAD.find(grid.workload)
    except SweepError as error:
        raise SweepError([grid.mistake(m.fact, ("workload",), m.remedy) for m in error.mistakes]) from error


class Builder:
    """``add`` every chunk of every cell, those of each node group after its ``use``; then take the ``table``."""

    def __init__(self, grid: Grid, workload: str) -> None:
        self._grid, self._workload = grid, workload
        self._words = Words()
        self._rejected: list[tuple[Mapping[str, Any], Any, Any]] = []
        self._runs: list[Mapping[str, Any]] = []
        self._ids: list[str] = []
        self._run_jsons: list[str] = []
        self._cells: list[tuple[int, str]] = []
        self._costs: list[Any] = []

    def use(self, site: Site, rules: Sequence[Rule]) -> None:
        """The nodes and the rules of the candidates that come next."""
        self._gpu = site.hardware
        self._physics = Physics(self._workload, site.hardware, self._grid.max_memory_share)
        self._rules = (*rules, FITS)

    def add(self, product: AxisProduct, columns: Columns) -> None:
        """Check the candidates; store the rejected with their reasons, and make runs of the others."""
        broken = np.zeros(columns.size, dtype=bool)
        peaks, over = self._physics.check(columns)
        found: list[tuple[Indices, Indices]] = []
        for rules in (self._rules, (TOO_LONG, NO_CHANCE)):
            if rules is not self._rules:
                spared = np.broadcast_to(included(columns, self._grid), columns.size)
                self._physics.foresee(columns, np.flatnonzero(~broken), self._grid, over, spared)
            for rule, mask in zip(rules, self._masks(columns, rules), strict=True):
                rows = np.flatnonzero(mask)
                if len(rows):
                    found.append((rows, reason_numbers(rule, columns, rows, self._words.numbered["reasons"])))
                    broken |= mask
        self._reject(columns, np.flatnonzero(broken), found, peaks)
        self._keep(product, columns, np.flatnonzero(~broken), peaks, over)

    def table(self) -> Any:
        """One row per candidate: the runs in their order, then the rejected. Raises SweepError for duplicate runs."""
        parts, shared = [], self._words.dictionaries()
        if self._ids:
            _refuse_duplicates(self._ids)
            runs = {name: np.concatenate([one[name] for one in self._runs]) for name in self._runs[0]}
            places = order(self._cells, np.concatenate(self._costs), runs["repeat"], self._ids)
            starts = range(0, len(places), CHUNK)  # of tables whose texts are bounded
            parts += [self._run_table(runs, places[start : start + CHUNK], start, shared) for start in starts]
        for batch, offsets, codes in self._rejected:
            size, reasons = len(offsets) - 1, lists(offsets, words(codes, shared["reasons"]))
            parts.append(table_of(size, {**batch, "status": np.ones(size), "reasons": reasons}, shared))
        return pa.concat_tables(parts) if parts else SCHEMA.empty_table()

    def _masks(self, columns: Columns, rules: Sequence[Rule]) -> list[Any]:
        """What each rule rejects. Raises SweepError with every constraint that is not a condition."""
        masks, mistakes = [], []
        for rule in rules:
            try:
                masks.append(broken_by(rule, columns))
            except ValueError as error:
                mistakes.append(self._grid.mistake(str(error), _place(rule.name)))
        if mistakes:
            raise SweepError(mistakes)
        return masks

    def _reject(self, columns: Columns, rows: Indices, found: Sequence[tuple[Indices, Indices]], peaks: Any) -> None:
        if not len(rows):
            return
        offsets, codes = listed(found, columns.size)
        # Candidates without a reason have no codes, so the offsets of the others remain valid.
        row_offsets = np.append(offsets[:-1][rows], offsets[-1]).astype(np.int32)
        batch = candidates(columns, rows, self._words)
        batch["predicted_peak_bytes"] = _peaks(peaks[rows])
        self._rejected.append((batch, row_offsets, codes.astype(np.int32)))

    def _keep(self, product: AxisProduct, columns: Columns, rows: Indices, peaks: Any, over: Any) -> None:
        if not len(rows):
            return
        step_s = columns["predicted step s"][rows]
        cost = costs(step_s, integers(columns, "global_batch_tokens", rows), over[rows])
        batch = plain_candidates(columns, rows, self._words)
        batch["predicted_peak_bytes"] = peaks[rows]
        if self._gpu.peaks_flops:
            iterations = self._grid.warmup_iterations + self._grid.iterations
            batch["predicted_step_s"] = step_s
            batch["predicted_s"] = ASSUMED_START_S + iterations * step_s
        if (count := len(self._ids) + self._grid.repeats * len(rows)) > MAX_RUNS:
            fact = f"this plan is too large: at most {MAX_RUNS:,} runs; it has {count:,} or more"
            raise SweepError(self._grid.mistake(fact, (), "fewer values per axis, fewer repeats, or several grids"))
        values = {name: self._plain(columns, name, rows) for name in VARYING if name != "repeat"}
        for repeat in range(self._grid.repeats):
            named = list(identities(self._grid, product, {**values, "repeat": [repeat] * len(rows)}))
            self._ids += [run_id for run_id, _ in named]
            self._run_jsons += [run_json for _, run_json in named]
            self._runs.append({**batch, "repeat": np.full(len(rows), repeat)})
            self._cells += [(product.nodes, product.row)] * len(rows)
            self._costs.append(cost)

    def _plain(self, columns: Columns, name: str, rows: Indices) -> list[Any]:
        """The column at the rows as Python values; parameters and variables as JSON."""
        if name in WORDS:
            codes = self._words.codes(columns, name, rows)
            known = list(self._words.numbered[name])
            return [known[code] for code in codes.tolist()]
        return integers(columns, name, rows).tolist()  # type: ignore[no-any-return]

    def _run_table(self, batch: Mapping[str, Any], places: Indices, start: int, shared: Mapping[str, Any]) -> Any:
        """The runs at some places of all, of which the first has the position ``start``."""
        size = len(places)
        found = {name: values[places] for name, values in batch.items()}
        peaks = _peaks(found.pop("predicted_peak_bytes"))
        arrays = {name: one if name in WORDS else typed(name, one) for name, one in found.items()}
        arrays["predicted_peak_bytes"] = peaks
        arrays["position"] = typed("position", np.arange(start, start + size))
        arrays["run_id"] = texts([self._ids[place] for place in places])
        arrays["run_json"] = texts([self._run_jsons[place] for place in places])
        arrays["status"] = np.zeros(size)
        arrays["reasons"] = lists(np.zeros(size + 1), words(np.zeros(0), shared["reasons"]))
        return table_of(size, arrays, shared)


def _peaks(peaks: Any) -> Any:
    known = np.isfinite(peaks)
    return numbers(np.where(known, peaks, 0), pa.int64(), ~known)


def _place(rule: str) -> Path:
    """The path of a rule that the grid states itself: constraints[2]."""
    match = re.fullmatch(r"(\w+)\[(\d+)\]", rule)
    return (match[1], int(match[2])) if match else (rule,)


def _refuse_duplicates(ids: Sequence[str]) -> None:
    if twice := sorted(run_id for run_id, times in Counter(ids).items() if times > 1):
        raise SweepError([Mistake(f"two runs of the plan have the same run_id {run_id}") for run_id in twice[:10]])


def refuse_impossible_batch(grid: Grid, products: Sequence[AxisProduct]) -> None:
    """Raise SweepError if no candidate of the whole grid meets the batch equation, though some meet the other."""
    nearest: dict[tuple[int, int], set[int]] = {}
    for product in products:
        for columns in chunks(product):
            whole = np.broadcast_to(columns["dp is whole"], columns.size)
            if (whole & columns["batch is near"]).any():
                return
            tokens = np.broadcast_to(columns["nearest tokens"], columns.size)
            nearest.setdefault((product.asked_tokens, product.gpus), set()).update(np.unique(tokens[whole]).tolist())
    if not any(nearest.values()):
        return
    asked, gpus = next(key for key, found in nearest.items() if found)
    found = set[int]().union(*(found for (tokens, _), found in nearest.items() if tokens == asked))
    near = sorted(found, key=lambda tokens: (abs(tokens - asked), tokens))
    tolerance = f" within {100 * grid.global_batch_tolerance:g} %" if grid.global_batch_tolerance else ""
    sequence = f"sequence_length {grid.sequence_length:,}"
    fact = f"no layout has a global batch of {asked:,} tokens{tolerance} at {sequence}"
    path = ("global_batch",) if grid.global_batch is not None else ("tokens_per_gpu",)
    raise SweepError(grid.mistake(fact, path, _remedy(grid, asked, near, gpus)))


def _remedy(grid: Grid, asked: int, near: Sequence[int], gpus: int) -> str | None:
    distance = abs(near[0] - asked) / asked
    tolerance = math.ceil(distance * 1000) / 1000
    binary = 2 ** round(math.log2(asked))  # what was probably meant by 1M: 1Mi
    meant = 0 < abs(binary - asked) <= asked / 10 and binary % grid.sequence_length == 0
    batches = list(dict.fromkeys([binary, *near] if meant else near))
    if grid.global_batch is None:
        batches = [tokens // gpus for tokens in batches if tokens % gpus == 0]
    values = f"near values: {', '.join(amount_text(tokens) for tokens in batches[:_OFFERED])}" if batches else None
    wider = f"global_batch_tolerance: {tolerance:g}" if tolerance < 1 else None
    return "; or ".join(filter(None, (values, wider))) or None


VARYING = (*LAYOUT, "dtype", "compile", "params", "env", "repeat", "further")
"""what differs between the runs of one product"""


def identities(grid: Grid, product: AxisProduct, rows: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, str]]:
    """(run_id, run_json) of each row, as ``sweep.contract.Run`` makes them.

    ``rows``: the VARYING columns; params, env and further already as JSON text.
    """
    template_of = {text: _template(grid, product, json.loads(text)) for text in set(rows["further"])}
    order = next(iter(template_of.values()))[1] if template_of else []
    texts = [rows[name] if name in ("params", "env") else map(_json, rows[name]) for name in order]
    slugs = _slugs(product, rows)
    for slug, text, values in zip(slugs, rows["further"], zip(*texts, strict=True), strict=True):
        run_json = template_of[text][0] % values
        yield f"{slug}-{hashlib.sha256(run_json.encode()).hexdigest()[:16]}", run_json


def _template(grid: Grid, product: AxisProduct, further: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The canonical JSON of the runs with a hole for each varying value, and the order of the holes."""
    holes: dict[str, Any] = {name: f"\x00{name}\x00" for name in VARYING if name != "further"}
    run = Run(
        workload=grid.workload,
        model=product.row,
        shape=product.shape.stated(),
        nodes=product.nodes,
        gpus_per_node=product.gpus_per_node,
        sequence_length=product.sequence_length,
        warmup_iterations=grid.warmup_iterations,
        iterations=grid.iterations,
        layout=Layout(**{name: holes[name] for name in LAYOUT}, **further),
        **{name: hole for name, hole in holes.items() if name not in LAYOUT},
    )
    parts = re.split(r'"\\u0000(\w+)\\u0000"', run.canonical_json())
    return "%s".join(part.replace("%", "%%") for part in parts[::2]), parts[1::2]


_json = functools.lru_cache(maxsize=None, typed=True)(json.dumps)
"""of one value, which many runs have; 1 is not True"""


def _slugs(product: AxisProduct, rows: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """The readable part of each run_id: that of ``Run.run_id``."""
    example = Run(
        workload="",
        model=product.row,
        shape={},
        nodes=product.nodes,
        gpus_per_node=1,
        sequence_length=1,
        layout=Layout(),
    )
    head = example.run_id.split("-dp1-tp1-pp1-")[0]
    for dp, tp, pp, cp, ep, zero, mbs, gas in zip(*(rows[name] for name in LAYOUT_NUMBERS), strict=True):
        middle = (f"-cp{cp}" if cp > 1 else "") + (f"-ep{ep}" if ep > 1 else "")
        yield f"{head}-dp{dp}-tp{tp}-pp{pp}{middle}-mbs{mbs}-gas{gas}-z{zero}"
