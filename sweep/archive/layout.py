"""What an archive may hold, for those who write and who open one: which names, how many files, how many bytes.

An archive is opened by people who did not make it. Nothing else is in one: a state that somebody else derived, or a
claim, would be believed.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path, PurePosixPath

from sweep.files import naming

FILES = 100_000
"""ten for each of the 10,000 runs of a large sweep"""
FILE_BYTES = 1 << 30
TOTAL_BYTES = 4 << 30
"""decompressed: a hundred times the journals of 10,000 attempts"""
HEADER_BYTES = 64 << 10
"""of one member, with its extended headers: ours have 2 KiB"""
_NAME = r"[^/.][^/]{0,254}"
_FILES = re.compile(
    r"archive\.json|provenance\.json|site\.yaml|grid(-[0-9]{4,9})?\.yaml|plan(-[0-9]{4,9})?\.parquet"
    rf"|journal/{_NAME}\.jsonl|logs/{_NAME}\.log|pilots/{_NAME}/{_NAME}"
)


def is_of_layout(folder: str, inside: str) -> bool:
    """Whether a file of that name may be in an archive whose folder has that name: no dot names, at most three deep."""
    named = bool(re.fullmatch(_NAME, folder)) and folder.isprintable() and inside.isprintable()
    return named and _FILES.fullmatch(inside) is not None


def read_regular(folder: Path, inside: str, most_bytes: int = FILE_BYTES) -> tuple[bytes, float]:
    """The content of a file below a folder, and when it was changed.

    Raises NotRegular where it, or what is between the two, is a link, or it is a pipe or device; or is too large.
    Raises OSError as opening it does: nothing waits for the other end of a pipe.
    """
    *above, name = PurePosixPath(inside).parts
    opened = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for part in above:
            if not stat.S_ISDIR(os.stat(part, dir_fd=opened[-1], follow_symlinks=False).st_mode):
                raise NotRegularError(f"{part} is a link")
            opened.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1]))
        if not stat.S_ISREG(
            os.stat(name, dir_fd=opened[-1], follow_symlinks=False).st_mode
        ):  # a device may act on open
            raise NotRegularError("it is a link, a pipe or a device")
        opened.append(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened[-1]))
        status = os.fstat(opened[-1])
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            raise NotRegularError(f"it has over {most_bytes >> 20} MiB")
        with naming(folder / inside), os.fdopen(opened.pop(), "rb") as file:
            return file.read(status.st_size), status.st_mtime
    finally:
        for descriptor in opened:
            os.close(descriptor)


class NotRegularError(Exception):
    """A file that no archive has, and why."""
