"""The version of sweep: one place, read by the build too."""

__version__ = "0.1.0"
