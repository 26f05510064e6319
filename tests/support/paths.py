"""Where things of the checkout are, wherever a test stands."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
