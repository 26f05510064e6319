"""Where pilots run: an executor turns a request into a job, reports states of jobs and ends them; and the batch script.

Only ``slurm`` imports submitit. When and how many pilots are wanted is in ``sweep.launcher``, what a job does in
``sweep.pilot``.
"""
