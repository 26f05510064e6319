"""What the user writes, from text to frozen values: grid, site, axes, models, overrides, checks and starter files.

A check returns problems (path in the file, fact, remedy); ``Document.located`` looks up the line once, at the edge.
Only ``load`` reads files (``starter_files`` its templates), and only it and ``detect`` query the machine. What follows
from a grid belongs to ``sweep.planning``.
"""
