"""transformers' logits on the GPU for a job's prompts, in fp32 and in bf16: a process of its own.

    python reference_process.py JOB.json OUT.npz

Writes `<dtype>/<prompt>` [rows, vocab] fp32 for the wanted rows.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM


@torch.no_grad()
def main() -> None:
    """Run both models over all prompts."""
    job = json.loads(Path(sys.argv[1]).read_text())
    torch.backends.cuda.matmul.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = {}
    for dtype in ("float32", "bfloat16"):
        model = AutoModelForCausalLM.from_pretrained(
            job["model"], dtype=getattr(torch, dtype), attn_implementation="eager"
        )
        model = model.eval().to(device)
        for name, tokens in job["prompts"].items():
            logits = model(torch.tensor([tokens], device=device)).logits[0]
            found[f"{dtype}/{name}"] = logits[job["wanted"][name]].float().cpu().numpy()
        del model
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()  # other tests want what this process no longer needs
    np.savez(Path(sys.argv[2]), **found)


if __name__ == "__main__":
    main()
