"""torch's NCCL flight recorder: asked for a dump before a kill, and told in a line. Not verified on hardware.

The file is a pickle of plain values (torch/csrc/distributed/c10d/FlightRecorder.hpp): it is read by an unpickler that
makes nothing else. A dump is asked for by a write to `<TORCH_NCCL_DEBUG_INFO_PIPE_FILE><rank>.pipe`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PREFIX = "flight."
MAX_BYTES = 64 << 20
_BAD_DUMP = (OSError, pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError)


def environment(scratch: Path) -> dict[str, str]:
    """What makes torch record, dump on a timeout without delay, and listen for the order to dump."""
    return {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "2000",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_FR_DUMP_TEMP_FILE": str(scratch / PREFIX),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(scratch / PREFIX),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(scratch / PREFIX),
    }


def ask_for_dump(scratch: Path, rank: int) -> None:
    """Order a dump; without a listener nothing happens."""
    with contextlib.suppress(OSError):
        fd = os.open(scratch / f"{PREFIX}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(OSError):
            os.write(fd, b"1")
        os.close(fd)


def tell_dump(scratch: Path, rank: int) -> str:
    """The last collective of the rank, in words; empty where there is no dump."""
    path = scratch / f"{PREFIX}{rank}"
    with contextlib.suppress(*_BAD_DUMP):
        if path.stat().st_size <= MAX_BYTES:
            with path.open("rb") as file:
                return in_words(_PlainUnpickler(file).load())
    return ""


def in_words(dump: Mapping[str, Any]) -> str:
    """The last entry that had begun and not completed, else the last completed."""
    entries = list(dump.get("entries", ()))
    pending = [entry for entry in entries if entry.get("state") != "completed"]
    if not entries:
        return "NCCL flight recorder: no collective was begun"
    entry = pending[0] if pending else entries[-1]
    return (
        f"NCCL flight recorder: {entry.get('profiling_name')} number {entry.get('collective_seq_id')} is "
        f"{entry.get('state')}, sizes {entry.get('input_sizes')}; {len(pending)} not completed"
    )


class _PlainUnpickler(pickle.Unpickler):
    """Numbers, texts, lists and maps only: a rank's file must not run anything here."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Refuse every class and function."""
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is no plain value")
