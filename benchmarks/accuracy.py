"""How accurate predicted step times are on published tables: python -m benchmarks.accuracy.

By trainer, kind of model, GPU and dtype: the mean absolute and the signed error of predictions before anything is
measured, how often measured values fall into the predicted intervals, and the errors of other models that are installed
on the same rows. ``--tables`` adds each published table apart, the range over values of what it does not state, and the
order of the playbook's cells; ``--rows`` every row with its parts; ``--constants`` prints every constant with its
spread, its source and the tables looked at before it was chosen. ``--write`` writes docs/research/accuracy.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import order_limits, small_to_large
from benchmarks.mlperf_tables import mlperf_tables
from benchmarks.order_limits import DISTURBED
from benchmarks.peers_prediction import installed, of_rows
from benchmarks.reference_tables import Rows, Table, tables
from benchmarks.sub_tables import bias, lines, mape, sub_tables
from benchmarks.unseen_tables import unseen_tables
from sweep.physics import constants, step_time
from sweep.physics.constants import Constant
from sweep.physics.trainers import TRAINERS


def ratios(table: Table, **assumed: Any) -> Any:
    """log(predicted / measured) of every row."""
    found = []
    for rows in table.rows:
        given = rows.assuming(assumed)
        found.append(np.log(step_time.step_time_s(given.columns, given.gpu, given.profile) / rows.seconds))
    return np.concatenate(found)


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
    yield f"\nhighest Spearman {highest:.3f}, lowest top-1 regret {lowest:.1%}\n"
    yield from order_limits.lines(rows)


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


def table_lines(found: list[Table]) -> Iterator[str]:
    """Each published table apart, and the order of the playbook's cells."""
    seen = [table for table in found if table.name in constants.ALL_SEEN_TABLES]
    yield "\n## Each table\n\nLooked at while the model was made:\n"
    yield from accuracy_lines(seen)
    yield "\nNot looked at before:\n"
    yield from accuracy_lines([table for table in found if table not in seen])
    playbook = next(table for table in found if table.name == "playbook")
    yield "\nThe order of the playbook's cells over values of what it does not state:\n"
    yield from order_lines(playbook)


DOCS = Path(__file__).parents[1] / "docs" / "research" / "accuracy.md"
_INTRODUCTION = """# Accuracy, by trainer and GPU

Written by `make accuracy ACCURACY="--calculon DIR --tables --write"`: predictions before anything is measured, on
published tables. *wrong*: a mean error over 15 % with a bias of about the same size; *interval*: of 15 rows and more
under 80 % or over 97 % lie in the predicted 90 % interval. Kinds: dense, experts, adapters (LoRA).
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--calculon", type=Path, help="a checkout of calculon: its errors on the same rows")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.constants:
        print("\n".join(constant_lines()))
        return
    found = tables() + unseen_tables() + mlperf_tables()
    peers = {name: lambda rows, peer=peer: of_rows(rows, peer) for name, peer in installed(asked.calculon).items()}
    text = [_INTRODUCTION, *lines(sub_tables(found, peers))]
    if asked.tables:
        text += table_lines(found)
        text += ["\n## Small to large\n", small_to_large.__doc__.split("\n\n")[1], "", *small_to_large.lines(found)]
    if asked.rows:
        text += [line for table in found for line in (f"\n{table.name}\n", *row_lines(table))]
    print("\n".join(text))
    if asked.write:
        DOCS.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
