"""How accurate predicted step times are on published tables: python -m benchmarks.accuracy [--rows]."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.reference_tables import Table, tables
from sweep.physics import step_time


def ratios(table: Table) -> Any:
    """log(predicted / measured) of every row."""
    found = []
    for rows in table.rows:
        predicted = step_time.step_time_s(rows.columns, rows.gpu, rows.profile)
        found.append(np.log(predicted / rows.seconds))
    return np.concatenate(found)


def ranking(table: Table) -> str:
    (rows,) = table.rows
    predicted = step_time.step_time_s(rows.columns, rows.gpu, rows.profile)
    correlations, regrets = [], []
    for cell in dict.fromkeys(rows.labels):
        mine = np.array([label == cell for label in rows.labels])
        one, two = predicted[mine], rows.seconds[mine]
        correlations.append(np.corrcoef(np.argsort(np.argsort(one)), np.argsort(np.argsort(two)))[0, 1])
        regrets.append(1 - two.min() / two[np.argmin(one)])
    text = f"Spearman {np.mean(correlations):.3f}, top-1 regret {np.mean(regrets):.1%}; bias by nodes"
    for nodes in np.unique(rows.columns["nodes"]):
        mine = rows.columns["nodes"] == nodes
        text += f" {nodes}: {np.exp(np.log(predicted / rows.seconds)[mine].mean()) - 1:+.0%}"
    return text


def _parts(rows: Any, place: int) -> str:
    found = step_time.predict(rows.columns, rows.gpu, rows.profile)
    total = np.broadcast_to(found.total_s, rows.seconds.shape)[place]
    shares = {name: np.broadcast_to(part, rows.seconds.shape)[place] / total for name, part in found.by_part().items()}
    return f"{total:.3g} s: " + " ".join(f"{name} {share:.0%}" for name, share in shares.items() if share > 0.005)


def main() -> None:
    for table in tables():
        log = ratios(table)
        error = np.abs(np.exp(log) - 1)
        print(f"{table.name:26} {len(log):5} rows  MAPE {error.mean():6.1%}  bias {np.mean(np.exp(log)) - 1:+7.1%}")
        if "--rows" in sys.argv and len(log) < 150:
            labels = [label for rows in table.rows for label in rows.labels]
            parts = [_parts(rows, place) for rows in table.rows for place in range(len(rows.labels))]
            for label, one, some in zip(labels, log, parts, strict=True):
                print(f"      {label:50} {np.exp(one) - 1:+.0%}  {some}")
        if table.name == "playbook":
            print("      " + ranking(table))


if __name__ == "__main__":
    main()
