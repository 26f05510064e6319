"""Compatibility with other versions of sweep: their directories, and their running pilots."""
