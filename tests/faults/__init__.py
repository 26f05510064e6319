"""Faults of real torch ranks on a real Slurm cluster."""
