"""Who differs: of ranks that stopped in the same iteration, the culprit is where the others are not. Pure.

In a hang most ranks wait in the same collective; the few whose stacks differ from that crowd are the suspects
(the method of ByteRobust, arXiv 2509.16293, sec. 4).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)', re.MULTILINE)
_CURRENT = re.compile(r"^(?:Current thread|Thread) .*$", re.MULTILINE)


def suspects(stacks: Mapping[int, str]) -> dict[int, str]:
    """Rank -> its innermost frames, for the ranks outside the largest group of equal stacks; empty without a crowd.

    ``stacks``: rank -> faulthandler's text.
    """
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, text in stacks.items():
        groups[_signature(text)].append(rank)
    if len(groups) < 2:
        return {}
    crowd = max(groups.values(), key=len)
    if 2 * len(crowd) <= len(stacks):
        return {}
    return {rank: _place(signature) for signature, ranks in groups.items() for rank in ranks if ranks is not crowd}


def innermost(text: str) -> str:
    """Where the main thread stands, as `name (file:line) from caller (file:line)`."""
    return _place(_signature(text))


def _place(signature: tuple[str, ...]) -> str:
    return " from ".join(signature[:2]) or "no stack"


def _signature(text: str) -> tuple[str, ...]:
    """The main thread's frames, innermost first. faulthandler prints the main thread last."""
    main = _CURRENT.split(text)[-1]
    return tuple(f"{m['name']} ({m['file'].rpartition('/')[2]}:{m['line']})" for m in _FRAME.finditer(main))
