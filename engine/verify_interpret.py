"""verify --interpret: rebuild a model's GPU code, compare with what is stored, run it on the CPU.

The kernels run by Triton's interpreter, which multiplies bf16 wrongly. So what runs is the same
plan built in fp32, and for a device of few multiprocessors: kernels that fill a device would
otherwise start a hundred programs for a step of one token.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from vcc.cache.errors import (
    CompileError,
    ConfigError,
    Exit,
    IntegrityError,
    StorageError,
    UsageError,
    VccError,
)
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.engine.compile.gpu import device_profile
from vcc.engine.compile.scratch import scratch
from vcc.engine.config.environment import interpreter_environment
from vcc.engine.config.keys import key_entries
from vcc.engine.config.modes import Dtype, Platform
from vcc.engine.config.plain import to_json
from vcc.engine.events import Events
from vcc.engine.graphs.planner.content import GpuContent, write
from vcc.engine.graphs.planner.process import plan_in_child
from vcc.engine.models.quant.kv import check_cache_interpretable
from vcc.engine.models.quant.target import check_interpretable
from vcc.engine.op_routes import op_routes
from vcc.engine.request import Settled, look_up, request_pairs, settle
from vcc.engine.verify_job import CONTENT, RESULT, Job, Outcome

MULTIPROCESSORS = 4
"""Of the device that the interpreted table is for, unless the target says."""

MODULE = "vcc.engine.verify_steps"
GOLDEN = "golden/"


class OutOfStep(VccError):
    """A table computes, or a build gives, something else than it should."""

    exit, id = Exit.NEGATIVE, "MISMATCH"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a second build gave, beside a stored artifact: `blobs` are equal, byte by byte."""

    artifact: str
    blobs: int


@dataclass(frozen=True, slots=True)
class Interpreted:
    """The answer of a check that found nothing wrong.

    Attributes:
        target: what the code is for.
        rebuilt: None when no artifact of this request is stored.
        outcome: the steps that ran.
        seconds: of the stages of the build that was interpreted.
    """

    target: str
    rebuilt: Rebuilt | None
    outcome: Outcome
    seconds: Mapping[str, float]

    def as_dict(self) -> dict[str, object]:
        """The JSON of `--json`."""
        rebuilt = self.rebuilt
        stored = None if rebuilt is None else {"artifact": rebuilt.artifact, "blobs": rebuilt.blobs}
        return {
            "target": self.target,
            "rebuilt": stored,
            **self.outcome.as_dict(),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }


def interpret(settled: Settled, store: Store, asked: Sequence[int], events: Events) -> Interpreted:
    """Check the GPU code of a decoder without a GPU.

    Args:
        settled: the request, for a GPU.
        store: where an artifact of it may be.
        asked: token counts to run beside the usual steps.
        events: hears the stages of the builds.

    Raises:
        UsageError, ConfigError: not for a GPU, no decoder, no profile.
        OutOfStep: the first value that differs, or the first blob of a second build.
        OutOfRegion: a kernel reaches outside its memory.
        CompileError: a build failed.
    """
    if settled.request.target.platform is not Platform.CUDA:
        raise UsageError(
            "--interpret is for GPU code",
            f"the target is {settled.request.target}",
            "name one: --target sm_90",
        )
    source = settled.request.source
    if source.kind != "decoder":
        raise UsageError(
            "--interpret runs the steps of decoders",
            f"{source.name} is a plain forward",
            f"its pieces are checked on a GPU: vcc verify --run {source.name} --target "
            f"{settled.request.target}",
        )
    check_interpretable(source.spec.quant)
    check_cache_interpretable(settled.model.kv_cache_dtype, settled.request.target.platform)
    profile = device_profile(settled)
    _check_asked(settled, asked)
    rebuilt = _rebuilt(settled, store, events)
    few = replace(profile, sm_count=settled.request.target.sm_count or MULTIPROCESSORS)
    exact = _in_fp32(settled, events)
    content = plan_in_child(exact, few, events)
    with scratch() as folder:
        outcome = _run(exact, content, folder, asked, events)
    if outcome.mismatch is not None:
        raise _differs(outcome)
    unmatched = max(step.unmatched for step in outcome.steps)
    if unmatched:
        why = "custom ops are traced otherwise"
        events.note(f"{unmatched} values of a step are not compared: {why}")
    return Interpreted(str(settled.request.target), rebuilt, outcome, dict(content.stages))


def _in_fp32(settled: Settled, events: Events) -> Settled:
    """The same step in fp32, by kernels that the interpreter runs: Triton's for those of csrc."""
    request = settled.request
    model = replace(request.model, dtype=Dtype.FP32)
    own = {one.op for one in op_routes(settled) if one.route.backend == "cuda"}
    if own:
        events.note(f"Triton's kernels are run in place of csrc's: {', '.join(sorted(own))}")
    tokens = tuple(
        replace(one, backend="triton" if one.op in own else one.backend).token
        for one in settled.resolved.ops.decisions
        if one.enabled
    )
    compilation = request.compilation
    if own:
        compilation = replace(compilation, custom_ops=("none", *tokens))
    return settle(replace(request, model=model, compilation=compilation, keep=None))


def _rebuilt(settled: Settled, store: Store, events: Events) -> Rebuilt | None:
    """Build a stored artifact again and compare what the build alone decides."""
    base, stated = look_up(settled)
    try:
        entries = store.find(base, stated, accept=partial(_same_code, settled))
    except StorageError as error:
        events.note(f"nothing is compared with the store: {error}")
        return None
    if not entries:
        events.note("no artifact of this request is stored: there is nothing to rebuild")
        return None
    loaded = store.load(entries[0])
    made = plan_in_child(settled, device_profile(settled), events).blobs()
    # The references in goldens are those of the processor that made them.
    stored = {n: ref.sha256 for n, ref in loaded.manifest.blobs.items() if not n.startswith(GOLDEN)}
    again = {n: sha256(data).hexdigest() for n, data in made.items() if not n.startswith(GOLDEN)}
    for name in sorted(stored.keys() | again.keys()):
        if stored.get(name) != again.get(name):
            raise OutOfStep(
                f"artifact {entries[0].artifact[:12]} is not what a build gives here",
                f"{name} is {stored.get(name, 'absent')[:16]} there, "
                f"{again.get(name, 'absent')[:16]} here",
                "vcc inspect artifact says what built it: another torch or Triton gives other code",
            )
    return Rebuilt(entries[0].artifact, len(again))


def _same_code(settled: Settled, entry: Entry) -> bool:
    """Whether an entry was built from this request: what nobody states matches anything else."""
    pairs, _ = request_pairs(settled)
    config = dict(key_entries(settled.resolved.config, "code"))
    return all(entry.fields.get(name) == pairs.get(name) for name in (*_TARGET, *config))


_TARGET = ("target", "target.profile")


def _run(
    settled: Settled, content: GpuContent, folder: Path, asked: Sequence[int], events: Events
) -> Outcome:
    (folder / CONTENT).mkdir()
    write(content, folder / CONTENT)
    _job(settled, asked).write(folder)
    events.stage_started("interpret")
    status, said = _child(folder)
    try:
        found: dict[str, Any] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except OSError:
        raise CompileError(
            "the process that interprets the table ended without a result",
            f"it ended with {status}\n{said[-1000:]}".strip(),
        ) from None
    if "error" in found:
        raise _error(found["error"])
    events.stage_finished("interpret", found.pop("seconds"))
    return Outcome.of(found)


def _child(folder: Path) -> tuple[int, str]:
    command = [sys.executable, "-W", "ignore", "-m", MODULE, str(folder)]
    done = subprocess.run(
        command,
        env=interpreter_environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    return done.returncode, done.stderr


def _check_asked(settled: Settled, asked: Sequence[int]) -> None:
    """Refuse steps that no table will have, before tables are built."""
    from vcc.engine.compile.source import step_shape  # it brings torch

    most = step_shape(settled).max_tokens
    for count in asked:
        if not 1 <= count <= most:
            raise UsageError(f"no step has {count} tokens", f"the table is for 1 to {most}")


def _job(settled: Settled, asked: Sequence[int]) -> Job:
    from vcc.engine.compile.source import step_shape  # it brings torch

    shape, config = step_shape(settled), settled.resolved.config
    return Job(
        config=dict(settled.request.source.config),
        max_tokens=shape.max_tokens,
        max_seqs=shape.max_seqs,
        block_size=shape.block_size,
        blocks_per_seq=shape.max_blocks_per_seq,
        ops=tuple(sorted(settled.resolved.ops.enabled)),
        compilation=to_json(config),
        target=str(settled.request.target),
        length=settled.model.max_model_len or 1,
        asked=tuple(asked),
        loras=settled.model.max_loras or 0,
        lora_rank=settled.model.max_lora_rank or 0,
        lora_targets=settled.model.lora_target_modules or (),
    )


def _differs(outcome: Outcome) -> OutOfStep:
    found = outcome.mismatch
    if found is None:
        raise ValueError("nothing differs")
    where = "the whole step" if found.segment < 0 else f"segment {found.segment}, {found.name}"
    error = "is not finite" if found.error < 0 else f"is off by {found.error:.3g}"
    return OutOfStep(
        f"the node table computes something else: {where}",
        f"{found.value} {error} (allowed {found.allowed:.3g}) in the {found.graph} step "
        f"'{found.step}', after {len(outcome.steps)} steps that agree",
        "this is a bug in vcc, please report it with the model's config.json",
    )


_KINDS: Mapping[str, type[VccError]] = {
    one.id: one for one in (CompileError, ConfigError, IntegrityError, UsageError)
}


def _error(found: Mapping[str, str]) -> VccError:
    """An error of the child; what a kernel does wrong is a negative answer."""
    kind = _KINDS.get(found["id"], OutOfStep)
    return kind(found["what"], found["why"], found["hint"])
