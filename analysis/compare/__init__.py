"""Two sweeps of the same grid, cell by cell and run by run: what became faster, what slower, and what is only noise.
Values in, verdicts out; loading and printing belong to the command line.

A change is the logarithm of the ratio of two values, turned so that more is better. Its variance has two parts. The
*iterations* of the two runs give the precision of each run's own median: the standard error of a median, times
sqrt(pi/2) over that of a mean. *From run to run* a configuration differs too (other nodes, other clocks, another
placement), which iterations of one run cannot show; it is estimated from the sweeps themselves: runs of one cell
share what changed the cell, so the spread of their changes is that noise (median absolute deviation, so that
a minority of runs which did change does not inflate it). Where there are too few pairs for that,
``noise.ASSUMED_NOISE`` is used. Changes over their standard error are Student's t, degrees of freedom by Welch and
Satterthwaite.

Each cell is tested twice: its best value against its best value (each sweep's own best, which treats both equally; the
same configuration in both would not, since the first sweep's winner is chosen for its luck too), and the median change
of the runs that both sweeps have. All tests of cells together, and apart from them all tests of runs, are corrected
for their number by Holm's procedure: on two copies of one sweep the chance to report anything is at most ``level``
each.
"""
