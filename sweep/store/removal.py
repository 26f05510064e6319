"""Whether a sweep directory was removed: missing for longer than a file system's client tries again."""

from __future__ import annotations

import time
from pathlib import Path

from sweep.errors import Mistake, SweepError

GONE_S = 600.0
"""how long a sweep directory may be missing before it counts as removed: as long as a file system's client tries (NFS
60 s to 600 s, man 5 nfs, timeo and retrans; Lustre as long)"""


class Removal:
    """Follows the failed accesses of one process. ``user``: launcher or pilot."""

    def __init__(self, directory: Path, user: str) -> None:
        self._directory, self._user = directory, user
        self._missing_since: float | None = None

    def check(self, error: OSError) -> None:
        """An access failed. Raises SweepError once the directory counts as removed."""
        if not isinstance(error, FileNotFoundError) or self._directory.exists():
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = time.monotonic()
        elif time.monotonic() - self._missing_since > GONE_S:
            fact = f"removed while its {self._user} ran: missing for {GONE_S:.0f} s"
            raise SweepError(Mistake(fact, file=str(self._directory), remedy=f"the {self._user} ends")) from error

    def accessed(self) -> None:
        """An access succeeded."""
        self._missing_since = None
