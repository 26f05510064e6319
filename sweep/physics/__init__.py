"""Formulas on numbers or numpy arrays: shapes, FLOPs, hardware, memory, communication, step time, sizing. Pure.

Corrections by measurements belong to ``sweep.search``. Differences between trainers are here (``profiles``).
"""
