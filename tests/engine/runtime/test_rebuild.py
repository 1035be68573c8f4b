"""What an artifact says is enough to name the command that builds it for another GPU."""

from __future__ import annotations

import shlex

from vcc.cache.manifest import Manifest
from vcc.engine.compile.keys import pairs
from vcc.engine.config.parse import parse_config, parse_model
from vcc.engine.config.target import Target
from vcc.engine.config.types import ParallelConfig
from vcc.engine.models.source import open_source
from vcc.engine.request import BuildRequest, request_pairs, settle
from vcc.engine.runtime.rebuild import rebuild_command


def test_the_command_has_the_modes_and_limits_of_the_artifact() -> None:
    asked = BuildRequest(
        source=open_source("demo", weights="none"),
        model=parse_model({"source": "demo", "dtype": "fp32", "max_num_seqs": 4}),
        compilation=parse_config({"mode": "none", "cuda_graph_mode": "full"}),
        parallel=ParallelConfig(),
        target=Target.parse("sm_80"),
    )
    settled = settle(asked)
    fields, open_fields = request_pairs(settled)
    made = Manifest(
        request=pairs(fields),
        open_fields=open_fields,
        code_key=(("a", "b"),),
        title="my model · fp32",
    )
    assert shlex.split(rebuild_command(made, "sm_90")) == [
        *("vcc", "compile", "my model", "--target", "sm_90", "--mode", "full"),
        *("--compile", "none", "--dtype", "fp32"),
        *("--max-model-len", str(settled.model.max_model_len), "--max-num-seqs", "4"),
        *("--max-num-batched-tokens", str(settled.model.max_num_batched_tokens)),
    ]
