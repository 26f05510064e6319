"""The truth table, cases.yaml: layouts whose training must equal the single process, those that torch cannot do."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml
from packaging.specifiers import SpecifierSet

from bench_workloads.transformer import WORKLOAD
from sweep.contract import Layout, Run
from sweep.physics.shapes import ModelShape
from tests.support.ranks.harness import SHAPES, a_run


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    layout: Layout
    shape: str = "dense"
    values: dict = field(default_factory=dict)
    params: dict = field(default_factory=dict)

    def run(self, **values) -> Run:
        return a_run(self.layout, shape=SHAPES[self.shape], params=self.params, **{**self.values, **values})

    def __str__(self) -> str:
        return self.name


def case(text: str, shape: str = "dense", *, params: dict | None = None, **values) -> Case:
    """``dp=2 tp=2 zero=3``: a layout as text. Without a micro-batch size, 8 sequences in micro-batches of 2."""
    fields = {}
    for word in text.split():
        key, value = word.split("=")
        fields[key] = int(value) if value.isdigit() else value
    fields.setdefault("micro_batch_size", 2)
    fields.setdefault("grad_accum", max(1, 4 // fields.get("dp", 1)))
    name = " ".join([text, *(f"{k}={v}" for k, v in {**(params or {}), **values}.items())])
    name += f" {shape}" * (shape != "dense")
    return Case(name, Layout(**fields), shape, values, params or {})


def _listed(name: str) -> list[dict]:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())[name]


TABLE, COMPILED = ([case(row.pop("layout"), **row) for row in _listed(name)] for name in ("table", "compiled"))
FLOAT8 = [(row.pop("exact", False), case(row.pop("layout"), **row)) for row in _listed("float8")]
"""whether its numbers are one process' own, and what trains in 8 bits"""
IMPOSSIBLE = [(row.pop("rule"), case(row.pop("layout"), **row)) for row in _listed("impossible")]
"""rule, and what it rejects"""

CHOSEN = (
    "dp=2 zero=0",
    "dp=2 zero=3",
    "dp=2 zero=2 micro_batch_size=1 grad_accum=4",
    "tp=2",
    "pp=2 pp_schedule=1f1b",
    "pp=2 pp_schedule=zbv_zero_bubble",
    "cp=2",
    "dp=2 recompute=selective",
    "dp=2 tp=2 zero=3",
    "dp=2 pp=2 zero=1",
    "dp=2 ep=2 zero=3 moe",
    "dp=2 cp=2 zero=3",
    "dp=2 ep=2 tp=2 zero=3 deepseek",
    "cp=2 ep=2 deepseek",
)
"""the lines checked in every test run"""
assert {*CHOSEN} <= {one.name for one in TABLE}


def columns(run: Run) -> dict:
    """The run as a row of a plan."""
    facts = {name: getattr(run, name) for name in ("nodes", "gpus_per_node", "sequence_length", "dtype", "compile")}
    return {**ModelShape(**run.shape).as_dict(), **asdict(run.layout), **facts, **WORKLOAD.params, **run.params}


def broken_rules(run: Run) -> list[str]:
    """The rules of the workload that it breaks, under torch 2.13."""
    return [r.name for r in WORKLOAD.rules if "2.13.0" in SpecifierSet(r.torch) and bool(r.broken(columns(run)))]
