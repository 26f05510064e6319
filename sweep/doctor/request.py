"""What a doctor's pilot is asked to do, and the lines that it answers with. JSON files in the run's directory."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from sweep.checks.check import Json
from sweep.checks.speeds import Answer
from sweep.store.directory import write_once

REQUEST, ANSWERS, PILOT = "request.json", "answers.jsonl", "p0001"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the doctor on nodes."""

    tiers: tuple[str, ...]
    readers: tuple[str, ...]
    """of tier node"""
    every_pair: bool = False

    def write(self, folder: Path) -> None:
        """Write it, once."""
        write_once(folder / REQUEST, msgspec.json.format(msgspec.json.encode(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> Request:
        """The inverse."""
        return msgspec.json.decode((folder / REQUEST).read_bytes(), type=cls)


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
