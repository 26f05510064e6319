"""Experiment trackers: where results go besides the sweep directory.

They are called on the launcher's side only, in a process of their own (`sweep track`), never by ranks. The
record's content belongs to ``sweep.records``.
"""
