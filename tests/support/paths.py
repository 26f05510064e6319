"""Paths of the checkout, independent of a test's location."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
