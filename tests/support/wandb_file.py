"""Reads what a wandb client wrote offline: a LevelDB log of protobuf records.

Format: github.com/google/leveldb, doc/log_format.md, after a header of 7 bytes (":W&B", magic, version).
"""

import json
import struct
from pathlib import Path

from wandb.proto import wandb_internal_pb2 as pb

BLOCK = 32768


def records(path: Path):
    data, at, whole = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # full, last
            record = pb.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def read(path: Path):
    """One run: id, name, group, project, exit_code, config, summary, history."""
    run = {"config": {}, "summary": {}, "history": [], "exit_code": None}
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run |= {"id": record.run.run_id, "name": record.run.display_name}
            run |= {"group": record.run.run_group, "project": record.run.project}
            run["config"] |= values(record.run.config.update)
        elif kind == "config":
            run["config"] |= values(record.config.update)
        elif kind == "summary":
            run["summary"] |= values(record.summary.update)
        elif kind == "history":
            run["history"].append(values(record.history.item))
        elif kind == "exit":
            run["exit_code"] = record.exit.exit_code
    return run


def values(items):
    return {(item.key or ".".join(item.nested_key)): json.loads(item.value_json) for item in items}


def read_all(folder: Path):
    """Every offline run under a folder, by id; a run written twice fails."""
    runs = [read(path) for path in sorted((folder / "wandb").glob("offline-run-*/run-*.wandb"))]
    ids = [run["id"] for run in runs]
    assert len(ids) == len(set(ids)), "a run was written twice"
    return {run["id"]: run for run in runs}
