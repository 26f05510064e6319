"""A sweep that exists, for tests of the parts of a pilot."""

from tests.support.pilot_parts import existing

__all__ = ["existing"]
