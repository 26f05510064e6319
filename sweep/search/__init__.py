"""What a pilot runs next, and how a sweep learns while it runs. Pure: the plan and the world in, a choice out."""

from sweep.search.choose import Choice, choose, waiting

__all__ = ["Choice", "choose", "waiting"]
