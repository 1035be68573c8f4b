"""Keys of models that transformers defines, and what is refused where it is not installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.flow import ask

from vcc.cache.errors import ModelError
from vcc.engine.compile.keys import code_entries, plan_entries
from vcc.engine.models import transformers_sources
from vcc.engine.models.traced_keys import check_traced
from vcc.engine.models.transformers_sources import folder_of, may_have, source_files
from vcc.engine.request import look_up, settle

CONFIG: dict[str, Any] = {
    "architectures": ["Olmo2ForCausalLM"],
    "model_type": "olmo2",
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}


def settled(place: Path, **fields: Any) -> Any:
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps(CONFIG | fields))
    return settle(ask(place, weights="none"))


def test_the_request_is_the_config_without_what_changes_no_code(tmp_path: Path) -> None:
    first = look_up(settled(tmp_path / "a"))[0]
    assert look_up(settled(tmp_path / "b", transformers_version="9.9", use_cache=False))[0] == first
    assert look_up(settled(tmp_path / "c", rms_norm_eps=1e-3))[0] != first


@pytest.mark.parametrize(
    ("kind", "folder"),
    [
        ("olmo2", "olmo2"),
        ("xlm-roberta", "xlm_roberta"),
        ("clip_vision_model", "clip"),
        ("qwen3_5_moe_text", "qwen3_5_moe"),
        ("no_such_model", "-"),
        ("_", "-"),
        ("../bert", "-"),
        ("", "-"),
    ],
)
def test_a_part_of_a_model_has_the_folder_of_the_whole(kind: str, folder: str) -> None:
    import transformers

    assert folder_of({"model_type": kind}, Path(transformers.__file__).parent) == folder


def test_a_part_of_a_model_is_known_to_transformers() -> None:
    assert may_have("CLIPVisionModel", {"model_type": "clip_vision_model"})
    assert not may_have("NoSuchModel", {"model_type": "clip_vision_model"})


def test_the_code_key_has_the_version_and_the_sources_of_transformers(tmp_path: Path) -> None:
    import transformers

    one = settled(tmp_path / "a")
    code = code_entries(one, None)
    assert code["version.transformers"] == transformers.__version__
    assert len(code["model.source"]) == 64
    assert plan_entries(one)["model.layout"] == "as transformers saves it"
    other = settled(tmp_path / "b", architectures=["GraniteForCausalLM"], model_type="granite")
    assert code_entries(other, None)["model.source"] != code["model.source"]
    demo = settle(ask("demo", weights="none"))
    assert not {"version.transformers", "model.source"} & code_entries(demo, None).keys()


def test_the_digest_is_of_the_code_that_runs() -> None:
    """The model's own file, those that it takes layers from, and what all share."""
    import transformers

    place = Path(str(transformers.__file__)).parent
    names = {str(file.relative_to(place)) for file in source_files(place, "olmo2")}
    assert {"models/olmo2/modeling_olmo2.py", "masking_utils.py", "modeling_utils.py"} <= names


def test_without_transformers_a_build_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = settled(tmp_path / "a").request.source
    monkeypatch.setattr(transformers_sources, "PathFinder", type("None", (), {"find_spec": _none}))
    assert settled(tmp_path / "a").request.source.model_key() == source.model_key()
    with pytest.raises(ModelError, match="needs transformers to be compiled") as caught:
        check_traced(source, recorded=False)
    assert "pip install 'transformers>=" in caught.value.hint


def _none(name: str) -> None:
    return None
