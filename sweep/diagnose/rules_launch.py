"""Lines of what starts the ranks: Slurm's daemons, containers, MPI, ssh, compilers at run time, downloads.

Sources: Slurm src/common/slurm_errno.c and src/slurmd/slurmstepd, NVIDIA pyxis and enroot, Apptainer, Open MPI's and
MPICH's launchers, OpenSSH, pdsh, torch.utils.cpp_extension, DeepSpeed op_builder, Triton, huggingface_hub.
"""

from __future__ import annotations

from sweep.diagnose.model import LineRule, Weight, either, never_after, then
from sweep.outcomes import Outcome

_OFFLINE = (
    "Fetch it once on a host with internet access, into a cache that all nodes share (HF_HOME), and set "
    "HF_HUB_OFFLINE=1; or correct its name."
)

_SLURM_ERROR = r"(?:(?:sbatch|srun|salloc|squeue|scontrol|sacct|sinfo):|slurm_\w{1,40}) (?:error|fatal): "

LAUNCH: tuple[LineRule, ...] = (
    # Slurm's controller, not a node of the job: slurm_receive_msgs and "Task launch" name one of those.
    LineRule(
        "slurm-unreachable",
        Outcome.NETWORK,
        Weight.SUSPECT,
        rf"(?={never_after(_SLURM_ERROR, 'launch|slurm_receive_msgs')})"
        + then(
            _SLURM_ERROR,
            "Unable to contact slurm controller|Socket timed out on send/recv|Protocol authentication error"
            "|establish a configuration source",
        ),
        advice="Slurm's controller did not answer: it is busy or was restarted; repeat it later.",
    ),
    LineRule(
        "node-of-the-job",
        Outcome.NODE_FAIL,
        Weight.CONSEQUENCE,
        then(
            r"slurmstepd\S{0,40}: error: ",
            either(
                then("cgroup", "No space left"),
                then("unable to (?:create|add|instan)", "cgroup| cg "),
                then(r"container_\w{1,20}join", "fail"),
            ),
        )
        + r"|lost communication with a remote daemon|error:\s{1,3}mpi/pmix\w{0,10}: (?!_errhandler)",
        advice="A node could not set the job up, or no longer answers: look for its own messages, run again without "
        "it, and inform the administrators.",
    ),
    LineRule(
        "container-registry",
        Outcome.CONFIG_ERROR,
        Weight.CAUSE,
        then(
            "pyxis: |enroot|docker|apptainer|singularity|FATAL: ",
            r"(?:error(?: code)?:?|status|HTTP) (?:40[134]|429)\b",
        ),
        advice="The registry refused the image: 401, 403 ask for credentials (enroot: ~/.config/enroot/.credentials), "
        "404 for another name or tag, 429 to wait. Or import the image to a file once, and name that.",
    ),
    LineRule(
        "container-start",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        either(
            then(
                "pyxis: ",
                "couldn't start container|container start failed|failed to (?:import|create)|exited too soon"
                "|no such container",
            ),
            then(r"enroot-\w{1,20}: ", "fail|no such|not found"),
            r"^FATAL: .*(?:image|container|mount|overlay|fakeroot|setuid|exec)",
            r"OCI runtime \w{1,20} failed|docker: Error response from daemon",
            then("spank: required plugin ", "failed"),
        ),
        advice="The container did not start: check the image's name and path, access to its registry, its mounts, and "
        "that it holds the shell or entry point (pyxis: a path begins with / or ./).",
    ),
    LineRule(
        "mpi-start",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        r"not built with SLURM's PMI support|not enough slots available|PMI2?_Init failed|direct launched using .srun"
        r"|An error occurred in MPI_Init|looks like [\w ]{1,40} failed for some reason",
        advice="MPI and the launcher do not fit: choose a plug-in that this MPI was built with (srun --mpi=list), or "
        "request as many tasks as ranks.",
    ),
    LineRule(
        "ssh-refused",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        r"Permission denied \((?:publickey|password|keyboard|gssapi)|Host key verification failed"
        r"|not reachable via ssh|: ssh exited with exit code [1-9]",
        advice="The launcher logs in to the other nodes by ssh, and may not: set up keys without a password and known "
        "hosts, or start the ranks with srun.",
    ),
    LineRule(
        "ssh-unreachable",
        Outcome.NETWORK,
        Weight.SUSPECT,
        "ssh: connect to host|ssh: could not resolve",
        advice="The launcher cannot reach a node by ssh: check its name, port and network, or start the ranks with "
        "srun.",
    ),
    # Kernels and extensions that are compiled on the node, at run time.
    LineRule(
        "build-tools",
        Outcome.IMPORT_ERROR,
        Weight.SUSPECT,
        r"^(?!.*(?:WARN|INFO|DEBUG)).*(?:(?:CUDA|ROCM)_HOME\b.{0,40}(?:does not exist|not set)"
        r"|Ninja is required to load|\bld: cannot find -l\w|Failed to find C compiler|unsupported GNU version"
        r"|fatal error: \S+\.(?:h|hpp|cuh): No such file|\bmake(?:\[\d+\])?: \*\*\* "
        r"|is not defined for option 'gpu-name'"
        r"|Command '\['(?:[^']{0,200}[/-])?(?:gcc|g\+\+|cc|c\+\+|clang|ninja|nvcc|hipcc)')",
        advice="The node cannot compile what the program builds at run time: load the compiler and the CUDA toolkit "
        "there (CUDA_HOME), or build it beforehand into the environment.",
    ),
    LineRule(
        "not-on-this-gpu",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        then(
            "(?:Error|Exception): ",
            r"only supports? [^.]{0,40}GPUs?\b"
            r"|(?:not|n't) support(?:ed)? [^.]{0,30}(?:bf16|bfloat16|fp8|float8|tf32)"
            r"|(?:bf16|bfloat16|fp8|float8|tf32)\b[^.]{0,40} not supported"
            r"|requires [^.]{0,40}(?:Ampere|Hopper|Blackwell|compute capability)",
        ),
        advice="This GPU, or this build of the library, lacks what was asked for: choose another data type or kernel, "
        "or nodes with newer GPUs.",
    ),
    LineRule(
        "model-not-there",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        r"LocalEntryNotFoundError: |OfflineModeIsEnabled: "
        r"|Error: (?:Can't load (?:the )?[\w ]{3,20} for |We couldn't connect to|Couldn't reach)",
        advice=_OFFLINE,
    ),
    LineRule(
        "download",
        Outcome.NETWORK,
        Weight.SUSPECT,
        r"^(?!.*(?:WARN|INFO|DEBUG|thrown while requesting)).*"
        + then(
            r"(?:Error|Exception)\b",
            r"CAS service error|429 Client Error|Too Many Requests|\b5\d\d Server Error|Max retries exceeded with url"
            "|Temporary failure in name resolution|Failed to resolve",
        ),
        advice="A download failed: all ranks may ask at once, or the nodes have no internet access. " + _OFFLINE,
    ),
)
