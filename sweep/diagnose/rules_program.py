"""Lines of the program: imports, configuration, the loss, crashes.

Sources: CPython's error texts, argparse, hydra and omegaconf, pydantic, glibc's loader, and the checks of Megatron-LM,
DeepSpeed, nanotron, fairseq, transformers and Lightning.
"""

from __future__ import annotations

from sweep.diagnose.model import LineRule, Weight, rule
from sweep.outcomes import Outcome

_ENV = "Install the missing module in the environment that the ranks use, or load the module or path that has it."
_BINARY = "Rebuild the extension against the installed torch, CUDA and C library."
_SIZES = (
    "Choose sizes that divide: heads, layers, hidden size, vocabulary and batch by the parallel widths and "
    "the GPU count."
)
_NAN = (
    "Lower the learning rate, clip gradients, use bf16 instead of fp16 and check the data; the speed measured "
    "is not reliable."
)

_DIVISIBLE = (
    r"(?:(?:is not|isn't|not|must be|should be|to be|has to be|needs to be|must|evenly) (?:evenly )?(?:divisible"
    r"|divides?|dividing|a multiple of|multiple of)"
    r"|not divisible by|must divide|must equal .*world)"
)

PROGRAM: tuple[LineRule, ...] = (
    # of our own driver, where the user's expression of an iteration found nothing
    rule(
        "metrics-pattern",
        Outcome.CONFIG_ERROR,
        Weight.CAUSE,
        "of params.metrics",
        r"`iteration` of params\.metrics, .* matched no line",
        advice="The trainer trained, but its iterations were not recognized: correct `iteration` in params.metrics of "
        "the grid. The message has the expression and the last lines that it was tried on.",
    ),
    rule(
        "import-binary",
        Outcome.IMPORT_ERROR,
        Weight.SUSPECT,
        "undefined symbol|glibc|cxxabi|error while loading shared libraries|cannot open shared object|error "
        "building extension|"
        "mismatches the version that was used to compile|incompatible cpu|wrong elf class|dll load failed|symbol "
        "lookup error",
        r"undefined symbol|version [`'\"]?(?:GLIBC|CXXABI)\S+ not found|error while loading shared libraries"
        r"|(?:ImportError|OSError).*cannot open shared object"
        r"|Error building extension|mismatches the version that was used to compile|wrong ELF class"
        r"|symbol lookup error",
        advice=_BINARY,
    ),
    rule(
        "import",
        Outcome.IMPORT_ERROR,
        Weight.SUSPECT,
        "modulenotfounderror|importerror|no module named|packagenotfounderror|distributionnotfound|versionconflict|"
        "failed to import",
        r"^(?!.*(?:WARN|INFO|DEBUG)).*(?:\b(?:ModuleNotFoundError|ImportError|PackageNotFoundError"
        r"|DistributionNotFound|VersionConflict)\b *(?::|$)|No module named \S|^\W*\w*Error: Failed to import)",
        advice=_ENV,
    ),
    rule(
        "config-parser",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        "unrecognized arguments|arguments are required|invalid choice|expected one argument|expected at least|"
        "invalid int value|invalid float value|"
        "error: argument|omegaconf|hydra|is not in struct|could not override|missing mandatory|validationerror|"
        "validation error|deepspeedconfigerror|"
        "misconfigurationexception|configkeyerror|mandatory value|no such option|missing option|invalid value for|"
        "error parsing|jsondecodeerror|yaml.|"
        "missingconfigexception|configerror|configurationerror|invalidconfig|ambiguous option|parametererror|"
        "unexpected extra argument|required config|error executing job|unknown argument|unrecognized keyword|some "
        "specified arguments are not used",
        r"error: (?:unrecognized arguments|the following arguments|argument |ambiguous option|invalid choice)"
        r"|omegaconf\.\w+\.\w+|hydra\.errors|hydra\.\S*Exception|is not in struct|Could not override"
        r"|Missing mandatory value|MissingMandatoryValue|ValidationError\b|\d+ validation errors? for"
        r"|DeepSpeedConfigError|Misconfiguration(?:Exception|Error)|ConfigKeyError|MissingConfigException"
        r"|Error: (?:No such option|Missing option|Invalid value for|Got unexpected extra)|JSONDecodeError"
        r"|yaml\.\w+\.\w+Error|\bConfig(?:uration)?Error\b|Invalid ?Config\w*Error"
        r"|Some specified arguments are not used",
        advice="The configuration is rejected: correct the key or value that the message names.",
    ),
    rule(
        "config-sizes",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        "divisible|divide|multiple of|world size|world_size|batch related parameters|train_batch_size|tensor "
        "parallel|pipeline parallel|"
        "tensor_model_parallel|pipeline_model_parallel|parallel size|parallel_size|number of gpus|num_layers|"
        "micro_batch|global batch|device mesh|gradient_accumulation|assert ",
        r"^\s*assert .{0,200} % .{0,200}== ?0|(?:Error|Exception|assert|FAILED|invalid|error)\b.*"
        + _DIVISIBLE
        + r"|^\W*(?:\w+ )*"
        + _DIVISIBLE
        + r"|(?:Error|Exception)\b.*(?:world[ _]size|batch related parameters|train_batch_size|(?:tensor|pipeline"
        r"|context|expert|model)[ _-](?:model[ _-])?parallel|parallel[ _]size|number of GPUs|num_layers"
        r"|micro[ _-]batch|global[ _-]batch|device mesh|gradient_accumulation)",
        advice=_SIZES,
    ),
    rule(
        "config-missing-file",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        "command not found|can't open file|no such file or directory|not a valid model identifier|repository not "
        "found|permission denied|is not a local folder|gated repo|"
        "cannot find config|not a git repository|no executable|not found in path|incorrect path_or_model_id|"
        "invalid username or password|does not appear to have a file",
        r": command not found|can't open file .*No such file|(?:exec\w*|slurmstepd|srun|env|bash|sh|torchrun"
        r"|line \d+): .*(?:No such file or directory|Permission denied)|not a valid model identifier"
        r"|Repository Not Found|is not a local folder|Cannot access gated repo|FileNotFoundError|PermissionError"
        r"|does not appear to have a file named",
        advice="A program or file that the run names is missing or not readable on the node: check the path, the "
        "spelling and the job's environment.",
    ),
    rule(
        "nan-stop",
        Outcome.NAN_LOSS,
        Weight.CAUSE,
        "loss is nan|nan loss|loss scale|found nan|nan in|nan or inf|nan detected|returned nan|loss is inf|not "
        "finite|non-finite|nan/inf|unexpected result|isnan|inf or nan|contains nan|"
        "nan values|invalid values|became nan|loss diverged|is nan|`nan`|nan encountered|encountered nan|infinite "
        "loss|exploding",
        r"loss(?: value)? (?:is|was|became|=|:) ?(?:nan|inf)\b|\bnan loss\b(?!es?\s*[:=]? ?(?:check|policy|false"
        r"|true|0))|loss scale already at minimum|Minimum loss scale reached|found (?:NaN|Inf)|NaN (?:or Inf "
        r"|/ ?Inf )?(?:detected|found|encountered)"
        r"|NaN/Inf|Rank \d+: found|returned nan values|loss is (?:not finite|infinite|non-finite)|(?:loss"
        r"|gradient)\w*\b.{0,40}\b(?:non-?finite|not finite)|non-?finite (?:loss|grad|norm)"
        r"|NaN in (?:\w+ )*(?:loss|grad|output|tensor|input|weight|param)"
        r"|Unexpected result (?:nan|inf)|(?:Error|Exception)\b.*\b(?:nan|inf or nan)s?\b"
        r"|contains (?:either )?`?(?:inf`?, `?)?nan|found invalid values|loss diverged|encountered nan|detected nan",
        advice=_NAN,
    ),
    # A training progress line; it counts only if the values stay nan (see scan.py).
    rule(
        "nan-metric",
        Outcome.NAN_LOSS,
        Weight.CAUSE,
        "nan",
        r"(?:loss|grad[ _-]?norm|perplexity|ppl)\w*['\"]?\s{0,3}[:=|]?\s{0,3}(?:tensor\()?(?:nan)\b"
        r"|number of nan iterations:\s+[1-9]",
        advice=_NAN,
        lasting=True,
    ),
    rule(
        "config-rejected-argument",
        Outcome.PYTHON_EXCEPTION,
        Weight.SUSPECT,
        "unexpected keyword argument",
        r"TypeError: .*unexpected keyword argument",
        advice="A library of another version is installed than the program was written for, or an option is misspelt: "
        "compare versions.",
    ),
    rule(
        "segfault",
        Outcome.SEGFAULT,
        Weight.SUSPECT,
        "segmentation fault|segfault encountered|sigsegv|double free|free(): invalid|malloc(): |munmap_chunk|"
        "corrupted size|corrupted "
        "double|floating point exception (core|illegal instruction|bus error (core|stack smashing|address not "
        "mapped|sigill|sigfpe",
        r"Segmentation fault|Segfault encountered|SIGSEGV|double free or corruption|free\(\): invalid"
        r"|malloc\(\): \w|munmap_chunk\(\): "
        r"|corrupted (?:size|double)|Floating point exception|Illegal instruction|Bus error \(core|stack smashing"
        r"|Address not mapped|SIGILL\b|SIGFPE\b",
        advice="A native library crashed: run the rank with PYTHONFAULTHANDLER=1, and check that the compiled "
        "extensions match "
        "torch, CUDA, the CPU and the driver.",
    ),
    rule(
        "bus-error",
        Outcome.SEGFAULT,
        Weight.CONSEQUENCE,
        "bus error",
        r"(?<!PCIe )Bus error",
        advice="SIGBUS: mostly a full /dev/shm or a truncated mapped file: enlarge /dev/shm and check the file system.",
    ),
)
