"""Clients of Slurm that lie: a folder that comes first on PATH, and a file in it per client that lies just now.

A job inherits the PATH that it was submitted with: its leader and agents ask the same clients.
"""

import shutil
from pathlib import Path

CLIENTS = ("squeue", "sacct", "scontrol", "scancel", "sbatch")
LIES = ("nothing", "garbage", "half", "late", "error", "old", "other")
"""``nothing``: no output and status 0. ``half``: of it. ``late``: the truth after a while. ``old``: the answer to
the same question before the lie. ``other``: about another job. scancel does nothing, unless it is late; sbatch submits
nothing where it reports an error or an older job, and otherwise submits the job whatever it says
"""
_CLIENT = """#!/bin/sh
client=${0##*/} here=${0%/*}
lie= seconds=
[ -f "$here/$client.lie" ] && read -r lie seconds < "$here/$client.lie"
[ "$client" = sbatch ] && question= || question=$*
answer=$here/$client.$(printf %s "$question" | cksum | tr ' ' -)
case $client.$lie in
    *.) ;;
    *.late) sleep "$seconds" ;;
    *.error) echo "$client: error: Zero Bytes were transmitted or received" >&2; exit 1 ;;
    scancel.*) exit 0 ;;
    *.old) [ -f "$answer" ] && cat "$answer"; exit 0 ;;
    sbatch.nothing) REAL "$@" > /dev/null; exit 0 ;;
    *.nothing) exit 0 ;;
    sbatch.garbage) REAL "$@" > /dev/null; head -c 300 /dev/urandom; exit 0 ;;
    *.garbage) head -c 300 /dev/urandom; exit 0 ;;
    *.half) REAL "$@" > "$answer.$$"; status=$?
        head -c $(($(wc -c < "$answer.$$") / 2)) "$answer.$$"; rm "$answer.$$"; exit $status ;;
    *.other) REAL "$@" | sed -E 's/^[0-9]+/9&/; s/(JobId=)([0-9])/\\19\\2/'; exit 0 ;;
esac
[ "$client" = scancel ] && exec REAL "$@"
REAL "$@" > "$answer.$$"; status=$?
cat "$answer.$$"
mv "$answer.$$" "$answer"
exit $status
"""


class LyingSlurm:
    """The clients in a folder. They are honest until one begins to lie."""

    def __init__(self, folder: Path, path: str) -> None:
        """``path``: the PATH on which the real ones are."""
        folder.mkdir()
        self._folder = folder
        self.path = f"{folder}:{path}"
        for client in CLIENTS:
            (folder / client).write_text(_CLIENT.replace("REAL", str(shutil.which(client, path=path))))
            (folder / client).chmod(0o755)

    def begin(self, client: str, lie: str, late_s: float = 20.0) -> None:
        """From now on. ``late_s``: how late an answer is that is late."""
        aside = self._folder / f".{client}"
        aside.write_text(f"{lie} {late_s}\n")
        aside.rename(self._folder / f"{client}.lie")

    def end(self, client: str) -> None:
        """Honest again."""
        (self._folder / f"{client}.lie").unlink(missing_ok=True)
