"""A real Slurm cluster on this machine, for tests: see ``tests.support.slurm.cluster.Cluster``."""
