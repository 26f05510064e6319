"""Sweeps and tables as a stranger could send them: values of every kind replaced by hostile ones, from a seed."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sweep.inputs.yaml_lines import dump, load
from sweep.outcomes import Outcome
from sweep.records.schema import arrow_types
from sweep.store.directory import SweepDir
from tests.support import made_sweeps
from tests.support.made_records import as_json, made_record, made_run
from tests.support.made_sweeps import made, pilot_wrote

OWNED = "owned"
"""the file that a command in one of the texts would make, and the element that one would add to a page"""
TEXTS = (
    *("", " ", "../../../owned", "/tmp/owned", "@/etc/passwd", "@/dev/zero", "~/owned", "-rf", "--help", "CON", "."),
    *("{{ 7 * 7 }}", "{{ 'a' * 10**9 }}", "{{ cycler.__init__.__globals__.os.system('touch owned') }}", "{% for %}"),
    *("A;touch owned;B", "$(touch owned)", "`touch owned`", "'; touch owned; '", '"; touch owned; "', "a\nb\rowned"),
    *("\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "\0", "\b\b\b", "\u202egnp.exe", "\u2066\u200f", "\ufeff", "\u2028"),
    *("<owned>", "</script><owned>", '" onowned="', "[/red][bold]", "$x^{y", "%s%n%1000000000d", "=1+1", "| a | b |"),
    *("nan", "inf", "-1", "1e999", "9" * 400, "null", "x" * 100_000, "ä" * 300, "e\u0301" * 200, "\U000e0041", "💥"),
    "\ud800",
)
NUMBERS = (
    *(math.nan, math.inf, -math.inf, 0, -0.0, -1, 1, 7, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**400),
    *(1e308, -1e308, 5e-324, 1e-300, 0.1),
)
DEEP, TOO_DEEP = 30, 3000


EXTRA = {
    "own_time_median_s": {"min": 1, "median": 1.5, "max": 2.0},
    "forward_backward_times_s": [0.5, 0.25],
    "device_samples": {"throttle_reasons": ["power"], "sm_clock_mhz": [100, 900, 1980]},
}
"""what further facts of a record a command reads"""


def deep(levels: int) -> Any:
    """Lists and objects in one another."""
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def spoiled(value: Any, chance: random.Random, share: float) -> Any:
    """The same value with that share of its leaves, and some of its names, replaced."""
    if isinstance(value, dict):
        names = {name: chance.choice(TEXTS) if chance.random() < share / 8 else name for name in value}
        return {names[name]: spoiled(item, chance, share) for name, item in value.items()}
    if isinstance(value, list) and chance.random() > share / 4:
        return [spoiled(item, chance, share) for item in value]
    if chance.random() >= share:
        return value
    if chance.random() < 0.2:
        return chance.choice((None, True, [], {}, [None], [math.nan], deep(DEEP), *TEXTS, *NUMBERS))
    return chance.choice(TEXTS if isinstance(value, str) else NUMBERS)


def json_of(value: Any, chance: random.Random, share: float) -> str:
    """JSON of the spoiled value; now and then of a form that no value has."""
    text = json.dumps(spoiled(value, chance, share))
    if chance.random() < share / 8:
        text = chance.choice(
            ("{", "[1]", "7", "null", '{"a": 1, "a": {"a": 2}}', json.dumps(deep(TOO_DEEP // 10)), "[" * TOO_DEEP)
        )
    return text


def table(path: Path, chance: random.Random, rows: int = 12) -> Path:
    """A results file: most rows state a few hostile values, so that a command gets past the first."""
    types = arrow_types()
    records = []
    for number in range(rows):
        run = made_run(workload=chance.choice(("transformer", "command", "simulated")), nodes=1 + number % 3)
        record = as_json(made_record(run, (0.1 + number / 100, 0.2, 0.3), gpu="h100")) | {"final": True}
        names = chance.sample(sorted(types), chance.choice((0, 1, 2, 3)))
        record["extra_json"] = json.dumps(EXTRA)
        records.append({name: _cell(record.get(name), types[name], chance, name in names) for name in types})
    columns = [pa.array([record[name] for record in records], kind) for name, kind in types.items()]
    found = pa.table(columns, [*types])
    if chance.random() < 0.1:  # a column of another type, or with bytes that are no text
        name = chance.choice(sorted(types))
        other = pa.array([chance.choice([b"\xff\xfe", b"", b"\0"]) for _ in records])
        found = found.set_column(found.column_names.index(name), name, other)
    if chance.random() < 0.3:
        found = found.append_column(_encodable(chance.choice(TEXTS)), pa.array([_encodable("x")] * rows))
    pq.write_table(found, path)
    return path


def _cell(value: Any, kind: pa.DataType, chance: random.Random, hostile: bool) -> Any:
    if not hostile:
        return value
    if pa.types.is_list(kind):
        return [_cell(None, kind.value_type, chance, True) for _ in range(chance.choice((0, 1, 3, 500)))]
    if pa.types.is_string(kind):
        is_json = isinstance(value, str) and value.startswith("{")
        return _encodable(json_of(json.loads(value), chance, 0.4) if is_json else chance.choice(TEXTS))
    if pa.types.is_boolean(kind):
        return chance.choice((True, False, None))
    number = chance.choice(NUMBERS)
    if pa.types.is_integer(kind):
        return number if isinstance(number, int) and abs(number) < 2**63 else None
    return float(str(number))


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


def text_table(path: Path, chance: random.Random) -> Path:
    """A CSV file of results, with hostile cells and names of columns."""
    rows = [as_json(made_record(made_run(nodes=1 + number % 3))) for number in range(8)]
    names = ["model", "nodes", "gpus_per_node", "gpu", "sequence_length", "tokens_per_second_per_gpu", "dp", "outcome"]
    names += chance.sample(sorted({*rows[0]} - {*names}), 4)
    texts = [text for text in TEXTS if "\0" not in text]
    numbers = [*map(str, NUMBERS), "-1e999", "", *(TEXTS if chance.random() < 0.2 else ())]
    choices = {name: numbers if name in ("gpu", "outcome") or not isinstance(rows[0][name], str) else texts
               for name in names}  # fmt: skip
    kept = [
        {name: chance.choice(choices[name]) if chance.random() < 0.03 else row[name] for name in names} for row in rows
    ]
    frame = pd.DataFrame(kept, dtype=object).rename(columns={names[-1]: chance.choice(TEXTS)})
    path.write_bytes(frame.to_csv(index=False).encode(errors="replace"))
    return path


def config(chance: random.Random) -> str:
    """A model's config.json."""
    sizes = dict.fromkeys(("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads"), 4)
    own = {"model_type": "llama", "intermediate_size": 64, "vocab_size": 512, "tie_word_embeddings": False, **sizes}
    return json_of(own, chance, chance.choice((0.1, 0.3)))


GRID = made_sweeps.GRID.replace("site: {", 'site: {name: there, setup: ["touch owned"], partition: part, ')


def sweep(folder: Path, chance: random.Random) -> SweepDir:
    """A sweep directory whose files each state a few hostile values; a log is hostile throughout."""
    theirs = made(folder, GRID)
    ends = [(run.run_id, 1, chance.choice((Outcome.OK, Outcome.OOM_CUDA))) for run in theirs.runs]
    pilot_wrote(theirs, "p0001", *ends)
    place = theirs.directory
    for run_id, attempt, _ in ends:
        place.log(run_id, attempt).write_bytes("\n".join(chance.sample(TEXTS, 9)).encode(errors="surrogatepass"))
    for file in ("pilot.out", "stdout", "stderr", "agents.log"):
        (place.pilot("p0001") / file).write_text("\n".join(map(_encodable, chance.sample(TEXTS, 9))))
    (place.pilot("p0001") / "job.json").write_text(json_of({"pilot": "p0001", "token": "t", "nodes": 1}, chance, 0.3))
    journal = place.journal("pilot-p0001")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    journal.write_text("".join(_line(line, chance) for line in lines))
    about = json.loads(place.provenance.read_text())
    place.provenance.write_text(json.dumps(spoiled(about, chance, chance.choice((0, 0.05)))))
    if chance.random() < 0.3:
        for file in (place.grid, place.site):
            values = load(file.read_text(), "own").value
            file.write_text(dump(spoiled(values, chance, 0.05)), errors="replace")
    if chance.random() < 0.2:
        name, plan = chance.choice(("run_json", "reasons", "status", "model", "nodes")), pq.read_table(place.plan)
        if name in plan.column_names and pa.types.is_string(plan.schema.field(name).type):
            cells = [_encodable(chance.choice(TEXTS)) for _ in range(len(plan))]
            pq.write_table(plan.set_column(plan.column_names.index(name), name, pa.array(cells)), place.plan)
    return place


def tables(place: SweepDir, chance: random.Random) -> None:
    """The derived files of a sweep, as a stranger would write them; `collect` believes them where they are its own."""
    for name in ("results.parquet", "skipped.parquet"):
        path = place.path / name
        if path.exists() and chance.random() < 0.5:
            found = pq.read_table(path)
            for column in chance.sample(found.column_names, 3):
                kind = found.schema.field(column).type
                cells = [_cell(cell, kind, chance, chance.random() < 0.5) for cell in found[column].to_pylist()]
                at = found.column_names.index(column)
                found = found.set_column(at, found.schema.field(column), pa.array(cells, kind))
            pq.write_table(found, path)
    if place.snapshot.exists() and chance.random() < 0.5:
        data = bytearray(place.snapshot.read_bytes())
        for _ in range(chance.choice((1, 9))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        place.snapshot.write_bytes(data)


def _line(event: dict[str, Any], chance: random.Random) -> str:
    """An event; its record's columns of JSON are spoiled within."""
    share = chance.choice((0, 0.02, 0.1))
    if isinstance(record := event.get("record"), dict):
        record = record | {"extra_json": json.dumps(EXTRA)}
        inner = {name: json_of(json.loads(text), chance, share * 3) for name, text in record.items()
                 if name.endswith("_json") and isinstance(text, str)}  # fmt: skip
        event = event | {"record": spoiled({**record, **inner}, chance, share)}
    else:
        event = {**spoiled(event, chance, share), "event": event["event"]}
    return json.dumps(event) + "\n"
