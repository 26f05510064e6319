"""sweep: find the fastest parallel configuration for every model size on every cluster size."""

__version__ = "0.1.0"
