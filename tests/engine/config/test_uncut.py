"""A mode of pieces over a graph that turns out to have none is settled as the resolver would."""

from __future__ import annotations

import pytest

from vcc.engine.config.modes import GraphMode, Platform
from vcc.engine.config.parse import parse_config
from vcc.engine.config.resolve import PlatformFacts, resolve
from vcc.engine.config.uncut import without_cuts

FACTS = PlatformFacts(Platform.CPU, 8, 64)


@pytest.mark.parametrize("mode", GraphMode)
def test_it_is_what_a_request_without_splitting_ops_resolves_to(mode: GraphMode) -> None:
    said = {"cuda_graph_mode": mode.value}
    uncut = resolve(parse_config({**said, "splitting_ops": []}), FACTS).config
    cut = resolve(parse_config(said), FACTS).config
    found, reasons = without_cuts(cut)
    for name in ("cuda_graph_mode", "capture_sizes", "max_capture_size"):
        assert getattr(found, name) == getattr(uncut, name)
    assert bool(reasons) is (found != cut) is (found.cuda_graph_mode is not mode)
    assert without_cuts(found) == (found, ())
