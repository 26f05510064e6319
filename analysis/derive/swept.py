"""What differs between the configurations of a table, in addition to their layouts: as short words. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analysis.tables import known
from sweep.contract import FURTHER

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("workload", "gpu", "sequence_length", "dtype", "compile", "pp_schedule", *FURTHER)
LABELS = {
    "etp": "ETP{}",
    "virtual_stages": "VP{}",
    "pipeline_layout": "{}",
    "recompute_modules": "rc:{}",
    "recompute_layers": "rc-{}-layers",
    "dispatcher": "{}",
    "cuda_graphs": "graphs:{}",
    "routing": "{}",
}
"""how a value of a further field reads, where it is not the trainer's own choice; a switch is its name"""
PRECISION = {
    "fp8_delayed": "FP8-delayed",
    "fp8_tensorwise": "FP8-tensor",
    "fp8_rowwise": "FP8-row",
    "fp8_blockwise": "FP8-block",
    "mxfp8": "MXFP8",
    "nvfp4": "NVFP4",
}
"""the recipes of ``dtype`` as NVIDIA's and PyTorch's documentation writes them, shortened"""
NESTED = ("params_json", "env_json")
SHOWN_ELSEWHERE = {"weights_dtype"}
"""parameters that the layout's own words name"""
LONGEST = 28
"""characters of a word that a tile or a table can have"""


def with_swept(best: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """``best`` with the column ``swept``: for each row the words of what differs among all ``rows``."""
    names = [name for name in COLUMNS if name in rows and rows[name].nunique(dropna=False) > 1]
    keys = {name: _differing(rows[name]) for name in NESTED if name in rows}
    swept: list[Any] = [_words(row, names, keys) for row in best.to_dict("records")]
    return best.assign(swept=swept)


def shared_words(rows: pd.DataFrame) -> list[str]:
    """The words of the schedule and the further fields that all rows share, where it is not the default."""
    names = [name for name in ("pp_schedule", *FURTHER) if name in rows and rows[name].nunique(dropna=False) == 1]
    if not names:
        return []
    row: dict[Any, Any] = {
        **rows.iloc[0].to_dict(),
        **{name: rows[name].max() for name in ("pp", "ep") if name in rows},
    }
    plain = {"pp_schedule": "1f1b", **FURTHER}
    return [word for name in names if row[name] != plain[name] and (word := _word(name, row))]


def _differing(texts: pd.Series[Any]) -> list[str]:
    """The keys of JSON objects that do not have one value throughout."""
    objects = [object_in(text) for text in texts.unique()]
    keys = sorted({key for found in objects for key in found} - SHOWN_ELSEWHERE)
    return [key for key in keys if len({json.dumps(found.get(key), sort_keys=True) for found in objects}) > 1]


def object_in(text: Any) -> dict[str, Any]:
    """The JSON object of a nested column; empty where there is none."""
    found = json.loads(text) if isinstance(text, str) else {}
    return found if isinstance(found, dict) else {}


def _words(row: Mapping[Any, Any], names: list[str], keys: Mapping[str, list[str]]) -> list[str]:
    found = [part for name in names for part in re.findall("[^,]+,?", _word(name, row))]  # a list may be wrapped
    for name, wanted in keys.items():
        values = object_in(row[name])
        found += [f"{key}={_plain(values[key])}" for key in wanted if key in values]
    return [word if len(word) <= LONGEST else word[: LONGEST - 1] + "…" for word in found]


def _word(name: str, row: Mapping[Any, Any]) -> str:
    value = row[name]
    if not known(value):
        return ""
    if name == "pp_schedule":
        return str(value).removesuffix("_1f1b") if row["pp"] is not None and row["pp"] > 1 else ""
    if name == "dtype":
        return PRECISION.get(str(value), str(value))
    if name in FURTHER:
        return _further(name, value, row)
    if name == "compile":
        return "compile" if value else "eager"
    return f"seq{int(value)}" if name == "sequence_length" else str(value)


def _further(name: str, value: Any, row: Mapping[Any, Any]) -> str:
    if isinstance(FURTHER[name], bool):
        return name.replace("_", "-") if value else ""
    if value in ("", 0, "none") or (name, value) == ("virtual_stages", 1) or (name == "dispatcher" and row["ep"] == 1):
        return ""
    return LABELS[name].format(value)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)
