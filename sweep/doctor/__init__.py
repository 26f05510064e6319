"""`sweep doctor`: reads the login node and, through a pilot, the nodes; judges them by ``sweep.checks``; reports."""
