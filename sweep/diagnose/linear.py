"""Parts of the rules' patterns that cost no more than a line's length, however often their texts are repeated in it.

``a.*b`` tries the rest of the line behind each ``a``: a line of many takes the square of its length.
"""

from __future__ import annotations


def then(first: str, rest: str, gap: str = "*") -> str:
    """As ``first.*rest``, tried from one ``first`` up to the next alone: the last one before ``rest`` is enough."""
    return rf"(?:{first})(?:(?!{first}).){gap}?(?:{rest})"


def never_after(first: str, words: str) -> str:
    """As ``first(?!.*words)``: the last ``first`` of the line is enough."""
    return rf"(?:{first})(?:(?!{first}|{words}).)*$"


def either(*patterns: str) -> str:
    """Any of them."""
    return "|".join(patterns)
