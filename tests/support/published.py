"""Tables of published data, from the folder that SWEEP_REFERENCE_DATA names."""

import csv
import os
from pathlib import Path

import numpy as np

from sweep.physics.catalogue import MODELS

REFERENCE = os.environ.get("SWEEP_REFERENCE_DATA")


LAYOUT = ("dp", "tp", "pp", "micro_batch_size", "grad_accum")


def rows(name):
    with (Path(REFERENCE) / name).open() as file:
        return list(csv.DictReader(file))


def column(found, name, kind=float):
    return np.array([kind(row[name]) for row in found])


def playbook(found):
    columns = {name: column(found, name) for name in LAYOUT}
    columns |= {"zero": column(found, "zero_stage"), "sequence_length": column(found, "seq_len"), "gpus_per_node": 8}
    shapes = [MODELS[row["model_label"]].as_dict() for row in found]
    return columns | {name: np.array([shape[name] for shape in shapes]) for name in shapes[0]}
