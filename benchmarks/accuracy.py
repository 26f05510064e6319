"""How accurate predicted step times are on published tables: python -m benchmarks.accuracy [--rows | --constants].

Per table the mean absolute and the signed error of predictions before anything is measured; where a table leaves facts
open, the range over values of them; of the playbook how well its cells are ordered, over such values too; apart,
tables that nothing in the model was chosen by; then how often measured values fall into the predicted intervals.
``--rows`` adds every row with its parts, ``--constants`` every constant with its spread, its source and the tables
looked at before it was chosen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np

from benchmarks.reference_tables import Rows, Table, tables
from benchmarks.unseen_tables import unseen_tables
from sweep.physics import constants, step_time
from sweep.physics.constants import Constant
from sweep.physics.prediction import Layouts, describe
from sweep.physics.trainers import TRAINERS

DISTURBED = 2.5
"""a run that took this many times as long as predicted, or as its cell's best, was hardly slow by its layout"""


def ratios(table: Table, **assumed: Any) -> Any:
    """log(predicted / measured) of every row."""
    found = []
    for rows in table.rows:
        given = rows.assuming(assumed)
        found.append(np.log(step_time.step_time_s(given.columns, given.gpu, given.profile) / rows.seconds))
    return np.concatenate(found)


def mape(log: Any) -> float:
    return float(np.abs(np.exp(log) - 1).mean())


def bias(log: Any) -> float:
    return float(np.exp(log).mean() - 1)


def accuracy_lines(found: list[Table]) -> Iterator[str]:
    yield "| table | rows | MAPE | bias | over values of what it does not state |"
    yield "|---|---|---|---|---|"
    for table in found:
        log = ratios(table)
        open_facts = ""
        if table.unknown:
            grid = table.possible()
            errors = [mape(ratios(table, **one)) for one in grid]
            best = grid[int(np.argmin(errors))]
            open_facts = f"{min(errors):.1%} to {max(errors):.1%}; least with " + ", ".join(
                f"{k} {v}" for k, v in best.items()
            )
        yield f"| {table.name} | {len(log)} | {mape(log):.1%} | {bias(log):+.1%} | {open_facts} |"


def ranking(rows: Rows) -> dict[str, Any]:
    """Order within the cells of the playbook (a label is a cell), and bias by number of nodes."""
    predicted = step_time.step_time_s(rows.columns, rows.gpu, rows.profile)
    correlations, regrets, calm = [], [], []
    for cell in dict.fromkeys(rows.labels):
        mine = np.flatnonzero([label == cell for label in rows.labels])
        ours, theirs = predicted[mine], rows.seconds[mine]
        correlations.append(np.corrcoef(np.argsort(np.argsort(ours)), np.argsort(np.argsort(theirs)))[0, 1])
        regrets.append(1 - theirs.min() / theirs[np.argmin(ours)])
        usual = theirs < DISTURBED * ours
        calm.append(1 - theirs[usual].min() / theirs[usual][np.argmin(ours[usual])])
    by_nodes = {}
    for nodes in np.unique(rows.columns["nodes"]):
        log = np.log(predicted / rows.seconds)[rows.columns["nodes"] == nodes]
        by_nodes[int(nodes)] = float(np.exp(log.mean()) - 1)
    return {
        "spearman": float(np.mean(correlations)), "top-1 regret": float(np.mean(regrets)),
        "top-1 regret without disturbed runs": float(np.mean(calm)), "bias by nodes": by_nodes,
    }  # fmt: skip


def order_lines(table: Table) -> Iterator[str]:
    """The order of the playbook's cells over values of what it does not state."""
    (rows,) = table.rows
    yield "| " + " | ".join(table.unknown) + " | Spearman | top-1 regret | MAPE | bias by nodes |"
    yield "|---" * (len(table.unknown) + 4) + "|"
    found = [(facts, ranking(rows.assuming(facts))) for facts in table.possible()]
    for facts, one in found:
        errors = [*one["bias by nodes"].values()]
        yield (
            "| " + " | ".join(map(str, facts.values())) + f" | {one['spearman']:.3f} | {one['top-1 regret']:.1%} | "
            f"{mape(ratios(table, **facts)):.1%} | {min(errors):+.0%} to {max(errors):+.0%} |"
        )
    highest, lowest = (
        choose(one[name] for _, one in found) for choose, name in ((max, "spearman"), (min, "top-1 regret"))
    )
    yield f"\nhighest Spearman {highest:.3f}, lowest top-1 regret {lowest:.1%}"


def described(table: Table) -> tuple[Layouts, Any]:
    layouts = Layouts.joined([describe(rows.columns, rows.gpu, rows.profile) for rows in table.rows])
    return layouts, np.log(np.concatenate([rows.seconds for rows in table.rows]))


def interval_lines(found: list[Table]) -> Iterator[str]:
    """How measured values lie in the intervals that are predicted before anything is measured."""
    yield "| table | rows | in 50 % interval | in 90 % interval |"
    yield "|---|---|---|---|"
    inside = []
    for table in found:
        layouts, log_seconds = described(table)
        off = np.abs(log_seconds - layouts.log_median) / layouts.prior_sd
        inside.append(off < np.array([[NormalDist().inv_cdf(share)] for share in (0.75, 0.95)]))
        half, most = inside[-1].mean(axis=1)
        yield f"| {table.name} | {len(off)} | {half:.0%} | {most:.0%} |"
    whole = np.concatenate(inside, axis=1)
    half, most = whole.mean(axis=1)
    yield f"| all rows | {whole.shape[1]} | {half:.0%} | {most:.0%} |"


def constant_lines() -> Iterator[str]:
    named: list[tuple[str, Constant]] = []
    for name, value in vars(constants).items():
        for key, one in value.items() if isinstance(value, dict) else [("", value)]:
            several = one if isinstance(one, tuple) else (one,)
            named += [(f"{name} {key}".strip(), each) for each in several if isinstance(each, Constant)]
    yield "| constant | median | spread | source | tables looked at before it was chosen |"
    yield "|---|---|---|---|---|"
    for name, one in named:
        yield f"| {name} | {one.median:g} | {one.spread:.0%} | {one.source} | {', '.join(one.seen) or 'none'} |"
    for name, behaviour in TRAINERS.items():
        yield f"| trainer {name} | | | {behaviour.source} | {', '.join(behaviour.seen) or 'none'} |"


def row_lines(table: Table) -> Iterator[str]:
    for rows in table.rows:
        found = step_time.predict(rows.columns, rows.gpu, rows.profile)
        total = np.broadcast_to(sum(found.values()), rows.seconds.shape)
        parts = {name: np.broadcast_to(part, rows.seconds.shape) / total for name, part in found.items()}
        for place, label in enumerate(rows.labels):
            shares = " ".join(f"{name} {part[place]:.0%}" for name, part in parts.items() if part[place] > 0.005)
            yield f"  {label}: {total[place] / rows.seconds[place] - 1:+.0%} of {rows.seconds[place]:.4g} s; {shares}"


def main() -> None:
    if "--constants" in sys.argv:
        print("\n".join(constant_lines()))
        return
    found = tables() + unseen_tables()
    seen = [table for table in found if table.name in constants.ALL_SEEN_TABLES]
    print("\n".join(accuracy_lines(seen)))
    playbook = next(table for table in found if table.name == "playbook")
    order = ranking(*playbook.rows)
    print(
        "\nplaybook: " + ", ".join(f"{name} {value:.3f}" for name, value in order.items() if isinstance(value, float))
    )
    print("bias by nodes: " + ", ".join(f"{nodes}: {value:+.0%}" for nodes, value in order["bias by nodes"].items()))
    print("\nThe same over values of what it does not state:\n\n" + "\n".join(order_lines(playbook)))
    unseen = [table for table in found if table not in seen]
    print("\nTables that nothing in the model was chosen by:\n\n" + "\n".join(accuracy_lines(unseen)) + "\n")
    print("\n".join(interval_lines(found)))
    if "--rows" in sys.argv:
        for table in found:
            print(f"\n{table.name}\n" + "\n".join(row_lines(table)))


if __name__ == "__main__":
    main()
