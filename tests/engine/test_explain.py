"""An explanation names the nearest artifacts, what differs, and what makes them answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.key_artifacts import asked, model_with, publish, with_code
from support.stores import blob_path

from vcc.cache.notes import LastLookup
from vcc.cache.store import Store
from vcc.engine.explain import Explanation, explain, explain_noted
from vcc.engine.request import look_up
from vcc.engine.runtime import host


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


def causes(found: Explanation, near: int = 0) -> dict[str, tuple[str | None, str | None, str]]:
    return {one.label: (one.found, one.wanted, one.hint) for one in found.nearest[near].causes}


def test_an_empty_store_is_the_reason(store: Store) -> None:
    found = explain(asked(), store)
    assert (found.why, found.hit, found.nearest) == ("the store is empty", None, ())


def test_a_hit_is_said_and_a_build_would_take_its_code(store: Store) -> None:
    entry = publish(store, asked())
    found = explain(asked(), store)
    assert (found.hit, found.why, found.nearest, found.rebuild) == (entry, "", (), ())


def test_a_hit_that_was_built_otherwise_says_why_a_build_would_compile_again(store: Store) -> None:
    wanted = asked()
    publish(store, wanted, **with_code(wanted, **{"version.torch": "2.12.0", "compiler": "g++ 9"}))
    found = explain(wanted, store)
    assert found.hit is not None
    assert [one.label for one in found.rebuild] == ["version.torch", "compiler"]
    assert "pip install 'torch==2.12.0'" in found.rebuild[0].hint


def test_another_dtype_is_nearer_than_another_model(store: Store) -> None:
    publish(store, asked(source=model_with(rms_norm_eps=1e-3)), created=9)
    bf16 = publish(store, asked(), created=1)
    found = explain(asked(dtype="fp32"), store)
    assert found.why == "artifacts of this model were built in another form"
    assert found.nearest[0].entry == bf16
    assert causes(found) == {"model.dtype": ("bf16", "fp32", "--dtype bf16")}


def test_another_model_is_told_by_what_differs_in_it(store: Store) -> None:
    publish(store, asked(source=model_with(rms_norm_eps=1e-3)))
    found = explain(asked(), store)
    assert found.why == "no artifact for this model"
    assert causes(found)["model.eps"][:2] == ("0.001", "1e-05")
    assert "model.digest" not in causes(found)


def test_another_model_of_unknown_parts_is_told_by_its_digest(store: Store) -> None:
    settled = asked(source=model_with(rms_norm_eps=1e-3))
    publish(store, settled, info={})
    assert list(causes(explain(asked(), store))) == ["model.digest"]


def test_a_manifest_that_cannot_be_read_still_gives_an_explanation(store: Store) -> None:
    entry = publish(store, asked(source=model_with(rms_norm_eps=1e-3)))
    blob_path(store.root, entry.artifact).write_bytes(b"spoilt")
    found = explain(asked(), Store.open(store.root, on_damage=lambda damage: None))
    assert list(causes(found)) == ["model.digest"]


@pytest.mark.parametrize(
    ("config", "model", "label", "hint"),
    [
        ({"mode": "none"}, {}, "config.mode", "--compile vcc"),
        ({"cuda_graph_mode": "none"}, {}, "config.cuda_graph_mode", "--mode full_and_piecewise"),
        ({"capture_sizes": [1]}, {}, "config.capture_sizes", "--shapes 1,2,4"),
        ({"level": 1}, {}, "config.level", "-O2"),
        ({}, {"max_num_seqs": 8}, "model.max_num_seqs", "--max-num-seqs 128"),
        (
            {"pass_config": {"eliminate_noops": False}},
            {},
            "config.pass_config.eliminate_noops",
            """--compilation-config '{"pass_config": {"eliminate_noops": true}}'""",
        ),
        (
            {"splitting_ops": []},
            {},
            "config.splitting_ops",
            """--compilation-config '{"splitting_ops": ["vcc::kv_write","vcc::paged""",
        ),
    ],
)
def test_a_field_that_differs_has_the_option_that_makes_it_hit(
    store: Store, config: dict[str, object], model: dict[str, object], label: str, hint: str
) -> None:
    publish(store, asked())
    found = explain(asked(config=config, **model), store)
    assert found.why == "artifacts of this model were built with other settings"
    assert causes(found)[label][2].startswith(hint)


def test_sizes_and_modes_are_no_cause_for_a_table_that_plays_them(store: Store) -> None:
    publish(store, asked(target="sm_90", max_num_seqs=4))
    config = {"cuda_graph_mode": "none", "pass_config": {"eliminate_noops": False}}
    found = explain(asked(target="sm_90", config=config), store)
    assert set(causes(found)) == {"config.pass_config.eliminate_noops"}


def test_a_target_of_another_platform_is_hinted_by_the_artifacts_own(store: Store) -> None:
    publish(store, asked(target="sm_90"))
    assert causes(explain(asked(), store))["target.platform"][2] == "--target sm_90"


def test_what_answers_but_not_on_this_host_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, asked())
    monkeypatch.setitem(host.CHECKS, "torch", lambda wanted: f"built for torch {wanted}")
    found = explain(asked(), store)
    assert found.hit is None
    assert found.why.startswith("not for this host: built for torch 2.")
    (label,) = causes(found)
    assert label == "host.torch"
    assert "pip install 'torch==2." in causes(found)[label][2]


def test_at_most_three_are_named(store: Store) -> None:
    for seqs in range(4, 10):
        publish(store, asked(max_num_seqs=seqs))
    assert len(explain(asked(max_num_seqs=99), store).nearest) == 3


def test_a_noted_look_up_is_explained_against_what_is_stored_now(store: Store) -> None:
    settled = asked(dtype="fp32", config={"cuda_graph_mode": "full"})
    base, stated = look_up(settled)
    identity = settled.request.source.model_key().entries
    noted = LastLookup("demo", base, tuple(stated.items()), identity, "the store is empty", 7)
    publish(store, asked())
    found = explain_noted(noted, store)
    assert (found.model, found.when) == ("demo", 7)
    assert set(causes(found)) == {"model.dtype", "config.cuda_graph_mode"}
    entry = publish(store, settled)
    assert explain_noted(noted, store).hit == entry


def test_no_remote_is_asked(store: Store) -> None:
    class Never:
        url = "file:///never"

        def bring(self, *_: object) -> bool:
            raise AssertionError("asked")

    assert explain(asked(), replace(store, remote=Never())).hit is None
