"""Lines of the program: imports, configuration, the loss, crashes.

Sources: CPython's error texts, argparse, hydra and omegaconf, pydantic, glibc's loader, and the checks of Megatron-LM,
DeepSpeed, nanotron, fairseq, transformers and Lightning.
"""

from __future__ import annotations

from sweep.diagnose.model import LineRule, Weight, either, then
from sweep.outcomes import Outcome

_ENV = "Install the missing module in the environment that the ranks use, or load the module or path that has it."
_BINARY = (
    "Libraries that do not fit together were loaded: rebuild the extension against the installed torch, CUDA and C "
    "library, and look for other copies of them (LD_LIBRARY_PATH, ldd)."
)
_SIZES = (
    "Choose sizes that divide: heads, layers, hidden size, vocabulary and batch by the parallel widths and "
    "the GPU count."
)
_NAN = (
    "Lower the learning rate, clip gradients, use bf16 instead of fp16 and check the data; the speed measured "
    "is not reliable."
)

CRASH = (
    "A native library crashed: run the rank with PYTHONFAULTHANDLER=1, and check that the compiled extensions match "
    "torch, CUDA, the CPU and the driver. The kernel's line about it, if any, ends with the library's name."
)
BUS_ERROR = "SIGBUS: mostly a full /dev/shm or a truncated mapped file: enlarge /dev/shm and check the file system."
METRIC = (
    "".join(rf"(?<!(?<![a-z]){word}[_/ ])" for word in ("val", "eval", "valid", "validation", "test"))
    + r"(?:loss|grad[ _-]?norm|perplexity|ppl)\w{0,40}['\"]?\s{0,3}[:=|]?\s{0,3}(?:tensor\(|['\"])?"
)
"""of a line of progress: what is before the value. An evaluation of no batch has nan, too"""

_DIVISIBLE = (
    r"(?:(?:is not|isn't|not|must be|should be|to be|has to be|needs to be|must|evenly) (?:evenly )?(?:divisible"
    r"|divides?|dividing|a multiple of|multiple of)"
    r"|not divisible by|must divide|" + then("must equal ", "world") + ")"
)

PROGRAM: tuple[LineRule, ...] = (
    # of our own driver, where the user's expression of an iteration found nothing
    LineRule(
        "metrics-pattern",
        Outcome.CONFIG_ERROR,
        Weight.CAUSE,
        then(r"`iteration` of params\.metrics, ", " matched no line"),
        advice="The trainer trained, but its iterations were not recognized: correct `iteration` in params.metrics of "
        "the grid. The message has the expression and the last lines that it was tried on.",
    ),
    LineRule(
        "import-binary",
        Outcome.IMPORT_ERROR,
        Weight.SUSPECT,
        r"undefined symbol|version [`'\"]?(?:GLIBC|CXXABI)\S+ not found|error while loading shared libraries"
        r"|Error building extension|mismatches the version that was used to compile|wrong ELF class"
        r"|symbol lookup error|\w_VERSION_MISMATCH\b|" + then("ImportError|OSError", "cannot open shared object"),
        advice=_BINARY,
    ),
    LineRule(
        "import",
        Outcome.IMPORT_ERROR,
        Weight.SUSPECT,
        r"^(?!.*(?:WARN|INFO|DEBUG)).*(?:\b(?:ModuleNotFoundError|ImportError|PackageNotFoundError"
        r"|DistributionNotFound|VersionConflict)\b *(?::|$)|No module named \S|^\W*\w*Error: Failed to import)",
        advice=_ENV,
    ),
    LineRule(
        "config-parser",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        r"error: (?:unrecognized arguments|the following arguments|argument |ambiguous option|invalid choice)"
        r"|omegaconf\.\w{1,40}\.\w|hydra\.errors|hydra\.\S{0,80}Exception|is not in struct|Could not override"
        r"|Missing mandatory value|MissingMandatoryValue|ValidationError\b|\d validation errors? for"
        r"|DeepSpeedConfigError|Misconfiguration(?:Exception|Error)|ConfigKeyError|MissingConfigException"
        r"|Error: (?:No such option|Missing option|Invalid value for|Got unexpected extra)|JSONDecodeError"
        r"|yaml\.\w{1,40}\.\w{1,40}Error|\bConfig(?:uration)?Error\b|Invalid ?Config\w{0,40}Error"
        r"|Some specified arguments are not used|│ (?:Unrecognized options|Required options were not provided): ",
        advice="The configuration is rejected: correct the key or value that the message names.",
    ),
    LineRule(
        "config-sizes",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        either(
            r"^\s*assert (?:(?! % ).){0,200} % .{0,200}== ?0",
            then(r"(?:Error|Exception|assert|FAILED|invalid)\b", r"divisible by \d|" + _DIVISIBLE),
            r"^\W*(?:\w+ )*" + _DIVISIBLE,
            then(
                r"(?:Error|Exception)\b",
                "world[ _]size|batch related parameters|train_batch_size|(?:tensor|pipeline"
                "|context|expert|model)[ _-](?:model[ _-])?parallel|parallel[ _]size|number of GPUs|num_layers"
                "|micro[ _-]batch|global[ _-]batch|device mesh|gradient_accumulation",
            ),
        ),
        advice=_SIZES,
    ),
    LineRule(
        "config-missing-file",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        either(
            then("can't open file ", "No such file"),
            then(
                r"(?:exec\w{0,20}|slurmstepd|srun|env|bash|sh|torchrun|line \d{1,9}): ",
                "No such file or directory|Permission denied",
            ),
            r": command not found|not a valid model identifier"
            r"|Repository Not Found|is not a local folder|Cannot access gated repo|FileNotFoundError|PermissionError"
            r"|does not appear to have a file named",
        ),
        advice="A program or file that the run names is missing or not readable on the node: check the path, the "
        "spelling and the job's environment.",
    ),
    LineRule(
        "nan-stop",
        Outcome.NAN_LOSS,
        Weight.CAUSE,
        either(
            then("loss|gradient", r"\b(?:non-?finite|not finite)", "{0,80}"),
            then(r"(?:Error|Exception)\b", r"\b(?:nan|inf or nan)s?\b"),
            r"loss(?: value)? (?:is|was|became|=|:) ?(?:nan|inf)\b|\bnan loss\b(?!es?\s*[:=]? ?(?:check|policy|false"
            r"|true|0))|loss scale already at minimum|Minimum loss scale reached|found (?:NaN|Inf)|NaN (?:or Inf "
            r"|/ ?Inf )?(?:detected|found|encountered)"
            r"|NaN/Inf|Rank \d+: found|returned nan values|loss is (?:not finite|infinite|non-finite)"
            r"|non-?finite (?:loss|grad|norm)"
            r"|NaN in (?:\w{1,20} ){0,5}(?:loss|grad|output|tensor|input|weight|param)"
            r"|Unexpected result (?:nan|inf)"
            r"|contains (?:either )?`?(?:inf`?, `?)?nan|found invalid values|loss diverged|encountered nan"
            r"|detected nan(?! check)",
        ),
        advice=_NAN,
    ),
    # A training progress line; it counts only if the values stay nan (see scan.py).
    LineRule(
        "nan-metric",
        Outcome.NAN_LOSS,
        Weight.CAUSE,
        METRIC + r"nan\b|number of nan iterations:\s+[1-9]",
        advice=_NAN,
        lasting=True,
    ),
    LineRule(
        "config-rejected-argument",
        Outcome.PYTHON_EXCEPTION,
        Weight.SUSPECT,
        then("TypeError: ", "unexpected keyword argument"),
        advice="A library of another version is installed than the program was written for, or an option is misspelt: "
        "compare versions.",
    ),
    # Those of the program, of torchrun and DeepSpeed about a child, of the kernel, which names the library, and of a
    # library that ends itself: assert(3), CHECK of glog. Ray names SIGSEGV whenever a worker is gone.
    LineRule(
        "segfault",
        Outcome.SEGFAULT,
        Weight.SUSPECT,
        either(
            r"Segmentation fault|Segfault encountered|SIGSEGV(?! or other)|double free or corruption|free\(\): invalid"
            r"|malloc\(\): \w|munmap_chunk\(\): "
            r"|corrupted (?:size|double)|Floating point exception|Illegal instruction|Bus error \(core|stack smashing"
            r"|Address not mapped|SIGILL\b|SIGFPE\b|: Assertion [`'].{1,300}' failed|:\d{1,5}\] Check failed: ",
            r"exitcode ?: ?-11\b|(?:exit|return) code ?[=:]? ?(?:-11|139)\b|Signal 11\b",
            r"segfault at [0-9a-f]{1,16} ip",
            then("traps: ", "general protection"),
        ),
        advice=CRASH,
    ),
    LineRule(
        "bus-error",
        Outcome.SEGFAULT,
        Weight.CONSEQUENCE,
        r"(?<!PCIe )Bus error|exitcode ?: ?-7\b|SIGBUS|Signal 7 \(",
        advice=BUS_ERROR,
    ),
)
