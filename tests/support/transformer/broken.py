"""The rules of the workload that a run breaks, under torch 2.13."""

from bench_workloads.transformer import WORKLOAD


def columns(run) -> dict:
    from dataclasses import asdict

    from sweep.physics.shapes import ModelShape

    facts = {name: getattr(run, name) for name in ("nodes", "gpus_per_node", "sequence_length", "dtype", "compile")}
    return {**ModelShape(**run.shape).as_dict(), **asdict(run.layout), **facts, **WORKLOAD.params, **run.params}


def broken_rules(run) -> list[str]:
    from packaging.specifiers import SpecifierSet

    return [r.name for r in WORKLOAD.rules if "2.13.0" in SpecifierSet(r.torch) and bool(r.broken(columns(run)))]
