"""Which models can be recorded on a GPU: what a hint may name. Torch-free."""

from __future__ import annotations

from vcc.cache.errors import UsageError
from vcc.engine.models.lora.spec import check_not_recorded
from vcc.engine.models.quant.kv import check_cache_compiled
from vcc.engine.models.quant.target import check_compiled
from vcc.engine.models.traced_keys import check_traced
from vcc.engine.request import Settled


def check_recorded(settled: Settled, *, recorded: bool) -> None:
    """Refuse a model that is to be recorded and cannot be.

    Raises:
        ConfigError: adapters, fp8 weights, an fp8 cache or a model of transformers in a recording.
        ModelError: as `check_traced`.
    """
    source = settled.request.source
    check_traced(source, recorded=recorded)
    check_not_recorded(settled.model, recorded=recorded)
    check_cache_compiled(settled.model.kv_cache_dtype, recorded=recorded)
    if source.kind == "decoder":
        check_compiled(source.spec.quant, recorded=recorded)


def why_not_recorded(settled: Settled) -> str:
    """Why a recording of this model would be refused; empty where it would not."""
    try:
        check_recorded(settled, recorded=True)
    except UsageError as error:
        return error.why
    return ""
