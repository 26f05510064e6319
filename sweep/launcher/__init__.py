"""The login side: submits pilots, watches them, submits further ones, and marks attempts of dead pilots lost.

It may be killed at any moment: its state is in the journals, and `sweep resume` continues from there. What runs
inside a job is in ``sweep.pilot``.
"""
