"""Whether a sweep directory was removed: missing for longer than a file system's client tries again."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from sweep.errors import Mistake, SweepError, log_error
from sweep.store.directory import SweepDir

GONE_S = 600.0
"""how long a sweep directory may be missing before it counts as removed: as long as a file system's client tries (NFS
60 s to 600 s, man 5 nfs, timeo and retrans; Lustre as long)"""


class Removal:
    """Follows the failed accesses of one process, and reports since when the directory cannot be used, and when it can
    again. ``user``: launcher or pilot.
    """

    def __init__(self, directory: Path, user: str) -> None:
        self._directory, self._user = directory, user
        self._failing_since: float | None = None
        self._missing_since: float | None = None

    def check(self, error: OSError) -> None:
        """An access failed. Raises SweepError once the directory counts as removed."""
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            log_error(f"{self._directory} cannot be used since {time.strftime('%H:%M:%S')}, trying again: {error}")
        if not isinstance(error, FileNotFoundError) or self._directory.exists():
            self._missing_since = None
            with contextlib.suppress(OSError):
                SweepDir(self._directory).restore_folders()
        elif self._missing_since is None:
            self._missing_since = time.monotonic()
        elif time.monotonic() - self._missing_since > GONE_S:
            fact = f"removed while its {self._user} ran: missing for {GONE_S:.0f} s"
            raise SweepError(Mistake(fact, file=str(self._directory), remedy=f"the {self._user} ends")) from error

    def accessed(self) -> None:
        """An access succeeded."""
        if self._failing_since is not None:
            log_error(f"{self._directory} can be used again, after {time.monotonic() - self._failing_since:.0f} s")
        self._failing_since = self._missing_since = None
