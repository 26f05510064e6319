"""`sweep doctor`: reads the login node and, through a pilot, the nodes; evaluates them by ``sweep.checks``; reports."""
