"""The command that builds an artifact again for another target, from what the artifact says."""

from __future__ import annotations

import json
import shlex

from vcc.cache.manifest import Manifest
from vcc.engine.config.spellings import COMPILE_WORDS

OPTIONS = {
    "--mode": "config.cuda_graph_mode",
    "--compile": "config.mode",
    "--dtype": "model.dtype",
    "--max-model-len": "model.max_model_len",
    "--max-num-seqs": "model.max_num_seqs",
    "--max-num-batched-tokens": "model.max_num_batched_tokens",
    "--max-loras": "model.max_loras",
    "--max-lora-rank": "model.max_lora_rank",
}
"""Options of `vcc compile` by the label of the request that they set."""

_WORDS = {mode.name: word for mode, word in COMPILE_WORDS.items()}


def rebuild_command(manifest: Manifest, target: str) -> str:
    """The command that builds an artifact again for another target."""
    fields = dict(manifest.request)
    words = ["vcc", "compile", manifest.title.split(" · ")[0], "--target", target]
    for option, label in OPTIONS.items():
        value = fields.get(label, "null")
        words += [] if value == "null" else [option, _WORDS.get(value, value)]
    words += ["--enable-lora"] if fields.get("model.enable_lora") == "true" else []
    for name in json.loads(fields.get("model.lora_target_modules", "null")) or ():
        words += ["--lora-target-modules", name]
    return shlex.join(words)
