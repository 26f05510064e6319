"""One compressed file of a sweep for others: what explains its results and failures, without secrets."""
