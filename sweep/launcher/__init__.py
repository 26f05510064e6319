"""The login side: submits pilots, watches them, submits further ones, and marks lost what a dead pilot left.

It may be killed at any moment: what it knows is in the journals, and `sweep resume` begins where it was. What runs
inside a job belongs to ``sweep.pilot``.
"""
