"""What an attempt's communication and memory tell, for its record. Pure: texts and counters in, record values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.diagnose.cuda_allocator import AllocatorVerdict, judge
from sweep.diagnose.nccl_log import summarize


def nccl_findings(outputs: Iterable[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """The summary of all ranks' NCCL lines as JSON values, and its findings; (None, []) where NCCL said nothing."""
    summary = summarize(line for text in outputs if "NCCL" in text for line in text.splitlines())
    return (None, []) if summary is None else (summary.as_json(), list(summary.findings))


def allocator_findings(extras: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any] | None, list[str], bool]:
    """The worst rank's allocator: its verdict as JSON values, findings, and whether its timing is not valid."""
    verdicts = [(rank, verdict) for rank, extra in enumerate(extras) if (verdict := _verdict(extra)) is not None]
    if not verdicts:
        return None, [], False
    rank, worst = max(verdicts, key=lambda pair: (bool(pair[1].pressure), len(pair[1].findings), -pair[0]))
    values = {**vars(worst), "rank": rank, "findings": list(worst.findings)}
    return values, [f"rank {rank}: {text}" for text in worst.findings], bool(worst.pressure)


def _verdict(extra: Mapping[str, Any]) -> AllocatorVerdict | None:
    """From what a workload's rank gives: ``allocator`` (peaks), ``allocator_new`` (counters over the timed iterations)
    and ``device_memory_not_torch_bytes``.
    """
    new = extra.get("allocator_new")
    if not isinstance(new, Mapping):
        return None
    peaks = {name: value for name, value in (extra.get("allocator") or {}).items() if value is not None}
    outside = extra.get("device_memory_not_torch_bytes")
    after = {**peaks, **new, "reserved_bytes.all.current": 0}
    return judge(dict.fromkeys(new, 0), after, device_free_bytes=0, device_total_bytes=outside)


def _own_words(extras: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the workload itself found odd: the ``notes`` of its ranks' further values, each once."""
    said = [note for extra in extras if isinstance(extra.get("notes"), list) for note in extra["notes"]]
    return list(dict.fromkeys(str(note) for note in said))


@dataclass(frozen=True)
class Findings:
    """Facts for the record's further values, notes in words, and whether the numbers cannot be trusted."""

    facts: Mapping[str, Any]
    notes: tuple[str, ...]
    invalid: bool

    @classmethod
    def of(cls, outputs: Iterable[str], extras: Sequence[Mapping[str, Any]]) -> Findings:
        """From the ranks' outputs and the further values of their measurements."""
        nccl, nccl_words = nccl_findings(outputs)
        allocator, allocator_words, invalid = allocator_findings(extras)
        facts = {"nccl": nccl, "allocator_verdict": allocator}
        known = {name: value for name, value in facts.items() if value is not None}
        return cls(known, (*nccl_words, *allocator_words, *_own_words(extras)), invalid)

    def annotate(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record with the notes. A note alone does not make it suspect: slow communication is slow, not wrong."""
        suspect = record["suspect"] or self.invalid
        return {**record, "notes": [*record["notes"], *self.notes], "suspect": suspect}
