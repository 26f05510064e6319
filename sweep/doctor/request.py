"""What a doctor's pilot is asked to do, and the lines that it answers with. JSON files in the run's directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sweep.checks.check import Json
from sweep.checks.speeds import Answer
from sweep.store.directory import write_once

REQUEST, ANSWERS, PILOT = "request.json", "answers.jsonl", "p0001"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One run of the doctor on nodes."""

    tiers: Sequence[str]
    readers: Sequence[str]
    """of tier node"""

    def write(self, folder: Path) -> None:
        """Write it, once."""
        write_once(folder / REQUEST, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> Request:
        """The inverse."""
        return cls(**json.loads((folder / REQUEST).read_text()))


class Answers:
    """The pilot's file of answers: a line per answer, one writer, appended only."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ANSWERS

    def write(self, kind: str, **values: Json) -> None:
        """Append one line."""
        with self._path.open("a") as file:
            file.write(json.dumps({"kind": kind, **values}) + "\n")

    def read(self) -> list[Answer]:
        """All whole lines so far."""
        if not self._path.exists():
            return []
        text = self._path.read_text(errors="replace")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
