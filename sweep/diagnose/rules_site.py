"""Lines of the scheduler, the kernel and the file systems.

Sources: Slurm src/slurmd/slurmstepd, src/srun and the state list of squeue(1); Linux mm/oom_kill.c, kernel/hung_task.c,
arch/x86/mm/fault.c; errno(3) texts of glibc.
"""

from __future__ import annotations

from sweep.diagnose.model import LineRule, Weight, either, never_after, then
from sweep.outcomes import Outcome

_SPACE = "Free space or raise the quota where the program writes (checkpoints, caches, TMPDIR), or write elsewhere."
_HOST = "Ask for more host memory (--mem), use fewer data-loading workers, or offload and pin less."
_SUBMIT = (
    "Correct the job's request: account, partition, QOS, time, nodes and GPUs as scontrol show partition lists them."
)

SITE: tuple[LineRule, ...] = (
    LineRule(
        "slurm-preempted",
        Outcome.PREEMPTED,
        Weight.SUSPECT,
        r"DUE TO (?:PREEMPTION|JOB REQUEUE)|(?:job|step|instance|node|task).{0,40}(?:has been|was|is"
        r"|being) (?:preempted|requeued)|TERM_PREEMPT|spot interruption|preemption notice",
        advice="A job of higher priority took the nodes: run again, or use a partition or QOS that is not preempted.",
        lasting=True,
    ),
    LineRule(
        "slurm-time-limit",
        Outcome.TIME_LIMIT,
        Weight.SUSPECT,
        r"DUE TO (?:TIME LIMIT|DEADLINE)|TERM_RUNLIMIT|exceeded.{0,20}walltime|Job has timed out"
        r"|reached its time limit|time limit exhausted|timed-out and not checkpoint|" + then("walltime ", "exceed"),
        advice="The job's time limit: ask for more time, or measure fewer iterations; check whether it was slow "
        "or stuck.",
        lasting=True,
    ),
    LineRule(
        "slurm-node-fail",
        Outcome.NODE_FAIL,
        Weight.CAUSE,
        r"DUE TO NODE \S*\s?FAIL|node fail(?:ure|ed)\b|JOB NOT ENDING WITH SIGNALS|Kill task failed"
        r"|not responding, setting DOWN|Zero Bytes were transmitted"
        r"|batch job complete failure|(?-i:\bNODE_FAIL\b)|are still not ready|lost contact with (?:node|host)"
        r"|missing from batch node|'s node has crashed",
        advice="A node failed: run again without it, and inform the administrators (sinfo -R, scontrol show node).",
        lasting=True,
    ),
    LineRule(
        "slurm-launch-failed",
        Outcome.NODE_FAIL,
        Weight.SUSPECT,
        then("Task launch for ", r" failed on node \S+: (?!Unable to (?:satisfy|layout))")
        + r"|Application launch failed: (?:Communication|Socket|Zero|Unable to contact|Can't find)"
        r"|launch failed requeued|prolog (?:error|fail|hung)|PrologSlurmctld failed|/slurm_script: No such file"
        r"|Slurmd could not \w|timeout waiting for task launch|tasks? [\d,-]+ launch failed: "
        r"|Munged? \w{1,20} (?:failed|error)\b",
        advice="Slurm could not start the step on a node: run again without that node, and inform the administrators.",
    ),
    LineRule(
        "host-oom",
        Outcome.OOM_HOST,
        Weight.CAUSE,
        r"oom[-_]kill event|OOM Killed|task[s]? [\d,\-]+: Out Of Memory|exceeded (?:step "
        r"|job )?(?:virtual )?memory limit(?! at some point)|State=OUT_OF_MEMORY|(?-i:\bOUT_OF_MEMORY\b)|OOMKilled"
        r"|TERM_MEMLIMIT|node was low on resource: memory"
        r"|oom-kill(?::|er)|Out of memory: Kill|oom_reaper: reaped|Killed process \d+|node running low on memory",
        advice=_HOST,
    ),
    LineRule(
        "host-malloc",
        Outcome.OOM_HOST,
        Weight.CAUSE,
        r"(?:^|[\s.:\]])(?:_Array)?MemoryError\b|Cannot allocate memory|std::bad_alloc|DefaultCPUAllocator"
        r"|can't allocate memory|Unable to allocate [\d.]+ [KMGT]iB|out of host memory"
        r"|(?:fail\w{0,3}|unable|not|error) (?:to )?alloc\w{0,10} .{0,40}\b(?:pinned (?:host )?memory|bytes on host\b)",
        advice=_HOST,
    ),
    LineRule(
        "shm-full",
        Outcome.DISK_FULL,
        Weight.CAUSE,
        either(
            r"insufficient shared memory|out of shared memory|unable to write to file </torch_"
            r"|raise your shared memory limit"
            r"|killed by signal: Bus error|unable to (?:open|resize|mmap|write) .{0,20}shared memory",
            then("dev/shm", "full|No space"),
            then(
                "failed to extend|while creating|while attaching to|posix_fallocate|No space left",
                "shared memory segment|/dev/shm",
                "{0,60}",
            ),
        ),
        advice="Shared memory (/dev/shm) is full: enlarge it (container --shm-size, --ipc=host), remove files of dead "
        "runs there, use fewer data-loading workers, or torch.multiprocessing's file_system sharing.",
    ),
    LineRule(
        "worker-killed",
        Outcome.OOM_HOST,
        Weight.SUSPECT,
        r"killed by signal:? (?:Killed|9)|process(?:es)? (?:was|were) SIGKILLed",
        advice=_HOST,
    ),
    # Slurm up to 17.11 writes "limit at some point" of any step that once met it, also of one that only dropped caches.
    LineRule(
        "killed",
        Outcome.OOM_HOST,
        Weight.CONSEQUENCE,
        r"^\s*(?:\S+: line \d+:\s+)?(?:\d+ )?Killed(?:\s|$)|^\S*Killed\s*$"
        r"|exitcode ?: ?-9\b|(?:exit|return) code ?[=:]? ?(?:-9|137)\b|Signal 9 \(SIGKILL\)"
        r"|died with <Signals\.SIGKILL|terminated with signal SIGKILL|memory limit at some point",
        advice="SIGKILL without a message is mostly the kernel's OOM killer: check dmesg. " + _HOST,
    ),
    # torch.save on a full disk: the zip writer fails before the file system reports it.
    LineRule(
        "disk-full",
        Outcome.DISK_FULL,
        Weight.CAUSE,
        r"^(?!.*(?:cgroup|inotify)).*No space left on device|Disk quota exceeded|\[Errno (?:28|122|27|30)\]"
        r"|\bE(?:NOSPC|DQUOT|ROFS)\b|(?<!API )(?<!rate )quota exceeded(?! for)|disk is full"
        r"|Read-only file system|File too large|not enough (?:free )?disk space|insufficient disk|disk full"
        r"|out of disk space|low on resource: ephemeral-storage|ephemeral local storage usage exceeds|"
        + then(r"inline_container\.cc", "unexpected pos|file write failed|failed writing")
        + r"|PytorchStreamWriter failed|basic_ios::clear: iostream error",
        advice=_SPACE,
    ),
    LineRule(
        "slurm-step",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        r"unable to create (?:job )?step[^:]{0,80}: (?:More proc|Memory required|Requested node conf|Invalid generic"
        r"|Requested GRES|Task distribution|Node count)",
        advice="srun asks for more than its own job has (tasks, CPUs per task, memory, GPUs or nodes): lower these "
        "options of srun, or raise those of the job.",
    ),
    LineRule(
        "slurm-submit",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        either(
            never_after(
                r"(?:batch job submission failed|unable to allocate resources|unable to create step[^:]{0,80}"
                r"|allocation failure|(?:sbatch|srun|salloc): fatal): ?",
                "Node fail|Socket timed|Unable to contact|Connection|temporarily|Timed out|Invalid job id|already",
            ),
            r"(?:sbatch|srun|salloc): (?:unrecognized|invalid) option|Invalid generic resource",
            then(
                "(?:sbatch|srun|salloc): error: ",
                "invalid (?!job)|specification|violates|unrecognized|not permitted|unavailable node|cpu bind"
                "|layout tasks|specified plugin",
            ),
        ),
        advice=_SUBMIT,
    ),
    LineRule(
        "file-system",
        Outcome.UNKNOWN,
        Weight.SUSPECT,
        r"^(?!.*(?:WARN|retrying|ignor)).*(?:(?:\[Errno|\(os error) (?:5|108|116)[\])]|\[Errno 107\] [\w ]{1,60}: ')",
        advice="The file system failed, not the program: it is down, this node lost it, or another process removed the "
        "file while it was open. Run again, on other nodes if it returns.",
    ),
    LineRule(
        "kernel-hung-task",
        Outcome.HANG,
        Weight.SUSPECT,
        r"task \S+ blocked for more than \d+ seconds",
        advice="A process hung in the kernel (D state), mostly on a file system or a driver: avoid the node until "
        "it is gone.",
    ),
    # Of corrected errors the kernel writes most of the same lines: only these words tell the others.
    LineRule(
        "kernel-hardware",
        Outcome.NODE_FAIL,
        Weight.CAUSE,
        then(r"\[Hardware Error\]", r"(?<!non-)\bfatal\b|uncorrected|recoverable|Machine Check Exception")
        + "|Kernel panic|(?:soft|hard) lockup|hardware memory corruption|"
        + then("EDAC ", r" UE\b"),
        advice="The node's hardware or kernel failed: avoid it, and inform the administrators.",
    ),
    # Without a reason it is scancel, or srun ending the step after another task's failure.
    LineRule(
        "cancelled",
        Outcome.CANCELLED,
        Weight.CONSEQUENCE,
        r"CANCELLED AT \S+ (?:by|\*\*\*)|CANCELLED by \d+|Force Terminated|job allocation \d+ has been revoked"
        r"|Process \d+ got signal: (?:1|2|15)\b|^\W*(?:\[?rank ?\d+\]?: ?)?KeyboardInterrupt\b",
        advice="The run was cancelled or interrupted: if that was not intended, look for an earlier failure of a task.",
        lasting=True,
    ),
)
