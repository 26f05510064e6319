"""`python megatron_checks.py CHECKOUT LAUNCHES.json`: Megatron-LM's checks of command lines."""

import json
import os
import sys
import typing
from pathlib import Path

import cuda_stubs
import typing_extensions

typing.override = typing_extensions.override  # of Python 3.12
cuda_stubs.use()
sys.path.insert(0, sys.argv[1])
from megatron.training.arguments import core_transformer_config_from_args, parse_args, validate_args  # noqa: E402

found = []
launches = json.loads(Path(sys.argv[2]).read_text())
for ranks, env, words in launches:
    os.environ |= {"WORLD_SIZE": str(ranks), "RANK": "0", **env}
    sys.argv[1:] = words
    try:
        args = parse_args()
        validate_args(args)
        core_transformer_config_from_args(args)
        later = "--async-save" in words
        assert (args.async_save, bool(args.save)) == (later, "--save" in words), "checkpoints as they were asked"
        assert not args.save or args.save_interval < args.train_iters < 2 * args.save_interval, "one checkpoint"
        found.append("")
    except (Exception, SystemExit) as error:
        found.append(f"{type(error).__name__}: {error}")
print(json.dumps(found))
