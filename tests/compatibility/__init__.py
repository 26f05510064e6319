"""What other versions of sweep left: their directories, and pilots of theirs that still run."""
