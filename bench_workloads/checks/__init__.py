"""What runs on a node to check it: readers, and timed exchanges between nodes. What is fit is ``sweep.checks``'."""
