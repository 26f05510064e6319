"""Whether each mechanism of `guided` earns its place: python -m benchmarks.ablation RESULTS [--clusters N] ...

RESULTS: the playbook's rows (`sweep import`). Each mechanism is switched off in turn. The search is then replayed with
a tenth of the runs of synthetic clusters (`benchmarks/synthetic_clusters.py`), and with several shares of copies of
RESULTS whose rates are off by chance. Prints Markdown: the mean regret with everything, and by how much it differs
without each mechanism, with the standard error (paired by cluster, by copy). A mechanism stays if that is two of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.replay import replay, report
from benchmarks.strategies_compared import tried
from benchmarks.synthetic_clusters import synthetic_cluster
from sweep.foreign.files import read_recorded
from sweep.physics import unknown_trainer
from sweep.search import posterior, scales, step_time_model
from sweep.search.budget import Budget
from sweep.search.candidates import Candidates
from sweep.search.guided import Guided
from sweep.search.layout_kernel import LayoutKernel
from sweep.search.posterior import Posterior
from sweep.search.saving import RecordedRun

FIRST, CLUSTERS, SHARE = 1000, 1000, 0.1
"""seeds that were looked at before; later ones are kept to judge the whole by"""
COPIES, NOISE, SHARES = 40, 0.01, (0.05, 0.1, 0.2)
EVERYTHING = "everything"


def _without_pairs(kernel: LayoutKernel, parts: Sequence[Any], shape: tuple[int, ...]) -> Any:  # noqa: ARG001
    return np.stack([sum(parts, np.zeros(shape)), np.zeros(shape), np.prod([np.ones(shape), *parts], axis=0)])


def _without_causes(columns: Mapping[str, Any], machine: Any) -> Any:  # noqa: ARG001
    return np.zeros((np.size(unknown_trainer._nodes(columns)), len(unknown_trainer.CAUSES)))


SWITCHES: Mapping[str, Sequence[tuple[Any, str, Any]]] = {
    EVERYTHING: (),
    "residual of pairs of axes": ((LayoutKernel, "_orders", _without_pairs),),
    "scales per number of nodes": ((scales, "PRIOR_OF_SIZES", 1e-3),),
    "scales by evidence": ((step_time_model, "most_evident", lambda first, *_: first),),
    "disturbed runs": (
        (step_time_model, "trust", lambda slower, *_: np.ones(len(slower))),
        (step_time_model, "DISTURBED", 1e-12),
    ),
    "spread of untested values": ((LayoutKernel, "untested", lambda _, __, rows: np.zeros((len(rows), 0))),),
    "memory posterior": ((Candidates, "peaks", None),),
    "failures of similar runs": ((Posterior, "_others", lambda _, rows: np.full(len(rows), posterior.OTHER_FAILURES)),),
    "causes of an unknown trainer": ((unknown_trainer, "causes", _without_causes),),
}
"""mechanism -> what is replaced: (module or class, attribute, value)"""


def _switched_off(name: str) -> ExitStack:
    stack = ExitStack()
    for place, attribute, value in SWITCHES[name]:
        stack.enter_context(patch.object(place, attribute, value))
    return stack


def of_cluster(names: Sequence[str], seed: int) -> list[list[float]]:
    """(mechanisms, 1): the mean regret over the cells, by true rates."""
    made, found = synthetic_cluster(seed), []
    for name in names:
        with _switched_off(name):
            candidates = replace(made.recorded.candidates)  # without what was derived from it before
            fresh = replace(made, recorded=replace(made.recorded, candidates=candidates))
            found.append([float(np.mean(tried(fresh, "guided", SHARE).regrets or [0.0]))])
    return found


def of_copy(names: Sequence[str], recorded: RecordedRun, seed: int) -> list[list[float]]:
    """(mechanisms, shares): the mean regret over the cells."""
    off = np.exp(NOISE * np.random.default_rng(seed).standard_normal(len(recorded.candidates)))
    most, found = [int(share * len(recorded.candidates)) for share in SHARES], []
    for name in names:
        with _switched_off(name):
            rates = recorded.tokens_per_second_per_gpu * off
            fresh = replace(recorded, candidates=replace(recorded.candidates), tokens_per_second_per_gpu=rates)
            done = replay(fresh, Guided(), Budget(runs=most[-1]))
            reports = [report(replace(done, order=done.order[:runs])) for runs in most]
            found.append([one["overall"]["mean_regret"] for one in reports])
    return found


def table(names: Sequence[str], clusters: Any, copies: Any) -> list[str]:
    """``clusters``, ``copies``: (each, mechanisms, shares) regrets."""
    heads = [f"{len(clusters)} clusters", *(f"{len(copies)} copies, {share:.0%}" for share in SHARES)]
    lines = [f"| without | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for place, name in enumerate(names):
        shown = [f"{found[:, 0, at].mean():.2%}" for found in (clusters, copies) for at in range(found.shape[2])]
        if name != EVERYTHING:
            off = [100 * (found[:, place] - found[:, 0]) for found in (clusters, copies)]
            shown = [
                f"{one[:, at].mean():+.2f} ± {one[:, at].std() / len(one) ** 0.5:.2f}"
                for one in off for at in range(one.shape[1])
            ]  # fmt: skip
        lines.append(f"| {name if name != EVERYTHING else 'nothing'} | {' | '.join(shown)} |")
    return lines


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--clusters", type=int, default=CLUSTERS)
    parser.add_argument("--first", type=int, default=FIRST, help="the first seed")
    parser.add_argument("--copies", type=int, default=COPIES)
    parser.add_argument("--without", nargs="+", choices=list(SWITCHES), default=list(SWITCHES))
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(argv)
    names = list(dict.fromkeys([EVERYTHING, *given.without]))
    recorded = read_recorded(given.results)
    with ProcessPoolExecutor(given.processes) as pool:
        copies = list(pool.map(partial(of_copy, names, recorded), range(given.copies)))
        clusters = list(pool.map(partial(of_cluster, names), range(given.first, given.first + given.clusters)))
    print("\n".join(table(names, np.array(clusters), np.array(copies))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
