"""On PYTHONPATH: what an NFS client does after a failover of its server.

While the file that SWEEP_STALE names exists, one access in eight to what is below the directory named in it fails with
ESTALE, and attributes are those of the last 3 s (man 5 nfs, acregmin).
"""

import errno
import os
import random
import sys
import time

FLAG, SHARE, ATTRIBUTES_S = os.environ.get("SWEEP_STALE", ""), 1 / 8, 3.0
_EVENTS = {"open", "os.scandir", "os.listdir", "os.link", "os.rename", "os.mkdir", "os.remove"}
_stat, _exists = os.stat, os.path.exists
_known: dict[object, tuple[float, os.stat_result]] = {}


def _is_stale(path: object) -> bool:
    if not isinstance(path, (str, os.PathLike)):
        return False
    try:
        descriptor = os.open(FLAG, os.O_RDONLY)
    except OSError:
        return False
    below = os.read(descriptor, 4096).decode()
    os.close(descriptor)
    return os.fspath(path).startswith(below)


def _on_access(event: str, arguments: tuple[object, ...]) -> None:
    if event in _EVENTS and arguments[0] != FLAG and _is_stale(arguments[0]) and random.random() < SHARE:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), arguments[0])


def _old_stat(path, *arguments, **options):
    if not _is_stale(path):
        return _stat(path, *arguments, **options)
    now = time.monotonic()
    known = _known.get(path)
    if known is None or now - known[0] > ATTRIBUTES_S:
        _known[path] = known = now, _stat(path, *arguments, **options)
    return known[1]


if FLAG:
    sys.addaudithook(_on_access)
    os.stat = _old_stat
