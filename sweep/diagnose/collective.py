"""Which collective of which process group timed out, as torch's watchdog states it. Pure.

Source: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: ``logPrefix()`` and the watchdog's message.
"""

from __future__ import annotations

import re

_GROUP = re.compile(r"\[PG ID \w{1,20} PG GUID [^\s(]{1,60}\((?P<group>[\w.:-]{1,60})\) Rank (?P<rank>\d{1,7})\]")
_WORK = re.compile(r"\bSeqNum=(?P<number>\d{1,12}), OpType=(?P<kind>\w{1,40})")


def waited(text: str) -> str:
    """A sentence on the collective, the group and the rank of the group that waited; empty where none is named.

    ``text``: from the watchdog's first line on; its further messages name the group where the first does not.
    """
    work, group = _WORK.search(text), _GROUP.search(text)
    if work is None and group is None:
        return ""
    what = f"{work['kind']} number {work['number']}" if work else "a collective"
    where = f" of the process group {group['group']} (rank {group['rank']} of it waited)" if group else ""
    return f"Some rank did not join {what}{where}. "
