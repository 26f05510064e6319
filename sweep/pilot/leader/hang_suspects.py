"""Hang suspects: of ranks that stopped in the same iteration, those whose stacks differ from the others'. Pure.

In a hang most ranks wait in the same collective; the few whose stacks differ from that majority are the suspects
(the method of ByteRobust, arXiv 2509.16293, sec. 4).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

_FRAME = re.compile(r'^[ \t]*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)', re.MULTILINE)
_CURRENT = re.compile(r"^(?:Current thread|Thread) .*$", re.MULTILINE)


_WAITS = re.compile(
    r"\((?:distributed_c10d|_functional_collectives|graph)\.py:\d+\)$|^(?:synchronize|barrier|all_reduce) \("
)
"""the innermost frame of a rank in a collective, in the backward pass (whose hooks communicate), or in a device wait"""


def suspects(stacks: Mapping[int, str]) -> dict[int, str]:
    """Rank -> its innermost frames, for the ranks outside the largest group of equal stacks.

    Without a majority (two ranks, say): those in no collective while at least as many others are in one; else empty.
    ``stacks``: rank -> faulthandler's text.
    """
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, text in stacks.items():
        groups[_signature(text)].append(rank)
    if len(groups) < 2:
        return {}
    crowd = max(groups.values(), key=len)
    if 2 * len(crowd) <= len(stacks):
        busy = {
            rank: _place(signature)
            for signature, ranks in groups.items()
            for rank in ranks
            if not (signature and _WAITS.search(signature[0]))
        }
        return busy if 2 * len(busy) <= len(stacks) else {}
    return {rank: _place(signature) for signature, ranks in groups.items() for rank in ranks if ranks is not crowd}


def innermost(text: str) -> str:
    """Where the main thread is, as `name (file:line) from caller (file:line)`."""
    return _place(_signature(text))


def _place(signature: tuple[str, ...]) -> str:
    return " from ".join(signature[:2]) or "no stack"


def _signature(text: str) -> tuple[str, ...]:
    """The main thread's frames, innermost first. faulthandler prints the main thread last."""
    main = _CURRENT.split(text)[-1]
    return tuple(f"{m['name']} ({m['file'].rpartition('/')[2]}:{m['line']})" for m in _FRAME.finditer(main))
