"""Every label that a key can have has a hint of its own kind."""

from __future__ import annotations

import pytest
from support.key_artifacts import asked, made

from vcc.cache.key import Difference
from vcc.engine.hints import hint_of
from vcc.engine.runtime.host import CHECKS


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_every_label_of_every_key_has_a_hint(target: str) -> None:
    manifest = made(asked(target=target))
    keys = (*manifest.request, *manifest.code_key, *manifest.plan_key)
    for label, value in keys:
        assert hint_of(Difference(label, value, "other")), label
        assert hint_of(Difference(label, None, value)), label


def test_every_host_rule_has_a_hint() -> None:
    for rule in CHECKS:
        assert hint_of(Difference(f"host.{rule}", "1", "2"))


@pytest.mark.parametrize(
    ("label", "found", "hint"),
    [
        ("model.code.shop.net", "ab", "the source was edited"),
        ("model.shape.x", "1-8x4", "--shape x=1-8x4"),
        ("env.CXX", "clang++", "set CXX as it was: clang++"),
        ("compiler", "clang++ 17.0", "CXX=clang++"),
        ("target", "sm_80", "--target sm_80"),
        ("model.max_model_len", "64", "--max-model-len 64"),
        ("config.inductor_config", '{"a":1}', """'{"inductor_config": {"a":1}}'"""),
        ("config.backend", "eager", """'{"backend": "eager"}'"""),
        ("config.dynamic_shapes.seqs.max", "8", """{"dynamic_shapes": {"seqs": {"max": 8}}}"""),
        ("op.rms_norm", "triton", '"custom_ops": ["+rms_norm:triton"] where that back end is'),
        ("op.rms_norm", "hip 0.1.9", '["+rms_norm:hip"]'),
        ("user_op.rms_norm", "ab", "the source was edited since: vcc compile builds with it"),
        ("user_pass.mine:PASS", "ab", "the source was edited since"),
        ("of.a.later.vcc", "1", "vcc compile builds one"),
    ],
)
def test_a_hint_names_the_option(label: str, found: str, hint: str) -> None:
    assert hint in hint_of(Difference(label, found, "wanted"))


def test_a_file_that_only_one_side_has_is_another_set_of_files() -> None:
    assert "set of source files" in hint_of(Difference("model.code.gone", None, "ab"))
