"""Is each workload of a sweep as fast as in a baseline: pass, fail, or not known. Pure.

A workload is one configuration with its repeats: one that was planned, or without a plan one that either side tried.
It fails where any repeat failed that worked in the baseline. Else it passes where the 95 % confidence interval of its
change lies above ``-within``, fails where it lies below, and is undecided between: more repeats narrow the interval.
What was not measured is undecided too. What the baseline has no value of is new, also where it fails in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from analysis.compare.noise import SAME, Change, Pair, Row, Side, changes, identity, key_of, noise_of, pairs_of
from analysis.derive.best import failed, is_simulated, succeeded
from analysis.metrics import DEFAULT_METRIC, Metric, metric_named
from analysis.tables import as_rows, known, layout_names, plain_values
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    import pandas as pd

PASS, FAIL, UNDECIDED, NEW = "pass", "fail", "undecided", "new"
CONFIGURATION = (*SAME, "dtype", "compile", "params", "env")
"""The plan's columns by which workloads differ"""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One workload against its baseline."""

    model: str
    nodes: int
    layout: Mapping[str, Any]
    verdict: str
    """pass, fail, undecided, or new: not in the baseline"""
    baseline: float | None
    value: float | None
    change: Change | None
    """None: it failed, or one side has no value"""
    reason: str
    """why there is no change"""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Every workload of a sweep against a baseline."""

    metric: Metric
    within: float
    simulated: bool
    """whether any run of either side was"""
    workloads: tuple[Workload, ...]
    """by model and nodes"""

    @property
    def passed(self) -> bool:
        """Whether the baseline has any, and each of these passes."""
        verdicts = {one.verdict for one in self.workloads}
        return PASS in verdicts and verdicts <= {PASS, NEW}

    def document(self) -> dict[str, Any]:
        """JSON values."""
        return {"passed": self.passed, **asdict(self), "metric": self.metric.name}


def certify(
    good: pd.DataFrame,
    now: pd.DataFrame,
    planned: pd.DataFrame | None,
    *,
    within: float,
    metric: str = DEFAULT_METRIC,
    noise: float | None = None,
) -> Certificate:
    """Records of the baseline and of the sweep (``analysis.load``), and the sweep's plan: the runs, with
    ``CONFIGURATION``. ``within``: the tolerated slowdown (0.05: 5 %). ``noise``: as for ``compare``.

    Raises SweepError where the baseline has none of the workloads.
    """
    ranked = metric_named(metric)
    a, b = Side(good, ranked), Side(now, ranked)
    names, _ = identity(a.all_rows, b.all_rows)
    pairs = list(pairs_of(a.rows, b.rows, names))
    runs: Sequence[Row] = as_rows(b.all_rows if planned is None else planned)
    # A plan has the parameters and the environment too, but not as records write them: redacted.
    stated = names if planned is None else [name for name in names if name in planned]
    if {key_of(row, stated) for row in a.rows}.isdisjoint(key_of(row, stated) for row in runs):
        fact = f"none of the {len(runs)} runs is measured in the baseline"
        raise SweepError(Mistake(fact, path="--baseline", remedy="a baseline of the same grid"))
    if planned is None:
        runs = _with_untried(runs, a, names)
    workloads: dict[tuple[Any, ...], list[Row]] = {}
    for row in runs:
        workloads.setdefault(key_of(row, CONFIGURATION), []).append(row)
    tests = changes({str(pair[1]["run_id"]): [pair] for pair in pairs}, ranked, noise_of(pairs, ranked, noise))
    compared = {str(pair[1]["run_id"]): (pair, tests[str(pair[1]["run_id"])]) for pair in pairs}
    worked = {key_of(row, names) for row in a.rows}
    failures = {
        str(row["run_id"]): (
            f"{row['outcome']} {row['message'] if known(row['message']) else ''}".strip(),
            key_of(row, names) in worked,
        )
        for row in as_rows(b.all_rows[failed(b.all_rows)])
    }
    measured = set(b.all_rows.loc[succeeded(b.all_rows), "run_id"].astype(str))
    checked = [_checked(repeats, compared, failures, measured, within) for repeats in workloads.values()]
    by_cell = sorted(checked, key=lambda one: (one.model, one.nodes))
    made_up = is_simulated(good) or is_simulated(now)
    return Certificate(metric=ranked, within=within, simulated=made_up, workloads=tuple(by_cell))


def _with_untried(tried: Sequence[Row], a: Side, names: Sequence[str]) -> list[Row]:
    """Without a plan: the runs of B, and what the baseline measured and B did not try."""
    keys = {key_of(row, names) for row in tried}
    rows = [*tried, *(row for row in a.rows if key_of(row, names) not in keys)]
    return [{**row, "params": row["params_json"], "env": row["env_json"]} for row in rows]


def _checked(
    repeats: Sequence[Row],
    compared: Mapping[str, tuple[Pair, Change]],
    failures: Mapping[str, tuple[str, bool]],
    measured: set[str],
    within: float,
) -> Workload:
    """``failures``: run_id -> how it ended, and whether the baseline measured that configuration."""
    runs = [str(row["run_id"]) for row in repeats]
    pair, change = next((compared[run] for run in runs if run in compared), (None, None))
    failed_now = [failures[run] for run in runs if run in failures]
    unmeasured = sum(run not in measured for run in runs)
    verdict, reason = UNDECIDED, ""
    if failed_now:
        verdict = FAIL if any(worked_before for _, worked_before in failed_now) else NEW
        reason = f"{len(failed_now)} of {len(runs)} failed: {failed_now[0][0]}"
    elif unmeasured:
        reason = "not measured" if unmeasured == len(runs) else f"{unmeasured} of {len(runs)} not measured"
    elif change is None:
        verdict, reason = NEW, "not in the baseline"
    elif change.low >= -within:
        verdict = PASS
    elif change.high < -within and not change.oversubscribed_runs:
        verdict = FAIL
    first, *_ = repeats
    return Workload(
        model=str(first["model"]),
        nodes=int(first["nodes"]),
        layout=plain_values(first, layout_names(first)),
        verdict=verdict,
        baseline=float(pair[0]["value"]) if pair is not None else None,
        value=float(pair[1]["value"]) if pair is not None else None,
        change=None if reason else change,
        reason=reason,
    )
