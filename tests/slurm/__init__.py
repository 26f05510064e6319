"""A real Slurm cluster on this machine, for tests: see ``tests.slurm.cluster.Cluster``."""
