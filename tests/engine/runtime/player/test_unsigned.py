"""Code that bears no signature is left alone where the policy asks for one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_cuda import Fake
from support.player_boot import boot, loaded
from support.step_tables import HIDDEN
from support.supply_case import STORED, STORED_DIGEST, WORKSPACE, entry

from vcc.engine.runtime.player import device as devices
from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.index import SelfTest
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmEntry, GemmStore

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("unsigned", [True, False])
def test_the_gemm_store_is_used_only_where_unsigned_code_may_be(
    fake: Fake, weights: Path, unsigned: bool
) -> None:
    gpu = Gpu.of_info(devices.open_device().info())
    product = GemmShape(1, HIDDEN, HIDDEN, "bfloat16")
    entries = [GemmEntry(product, entry(1), {STORED_DIGEST: STORED}, WORKSPACE)]
    GemmStore(weights.parent / "store").publish_products(gpu, 130100, entries, SelfTest(True, 1))
    runner = loaded(replace(boot(weights), unsigned=unsigned))
    gemms = runner._parts.gemms
    gemms.wait()
    assert (gemms.report.entries > 0) == unsigned
    assert ("bear no signature" in str(gemms.report)) == (not unsigned)
    assert runner.player.gemms(1, 1)[0]["route"] == ("store" if unsigned else "triton")
    runner.close()
