"""Code that a checkpoint brings along: refused, or part of the request; never run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import ARCHITECTURES, OWN_SIZES, SIZES

from vcc.cache.errors import ModelError
from vcc.engine.models import remote_code
from vcc.engine.models.source import Source, open_source

AUTO_MAP = {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
CODE = "raise SystemExit('the code of a checkpoint was run')\n"


def model(place: Path, **fields: Any) -> Path:
    config = {"architectures": [ARCHITECTURES["phi3"]], **SIZES, **OWN_SIZES["phi3"], **fields}
    (place / "config.json").write_text(json.dumps(config))
    (place / "modeling_own.py").write_text(CODE)
    return place


def trusted(place: Path) -> Source:
    return open_source(str(place), weights="none", trust_remote_code=True)


def request(source: Source) -> str:
    return source.model_key().digest.hex


def test_it_is_refused_by_name_with_the_flag_that_takes_it(tmp_path: Path) -> None:
    model(tmp_path, auto_map=AUTO_MAP)
    with pytest.raises(ModelError, match="code of its own") as caught:
        open_source(str(tmp_path), weights="none")
    assert "modeling_own.OwnForCausalLM" in caught.value.why
    assert "--trust-remote-code" in caught.value.hint


def test_trusted_it_is_part_of_the_request_byte_for_byte(tmp_path: Path) -> None:
    plain = request(open_source(str(model(tmp_path)), weights="none"))
    model(tmp_path, auto_map=AUTO_MAP)
    first = request(trusted(tmp_path))
    (tmp_path / "modeling_own.py").write_text(CODE + "# more\n")
    second = request(trusted(tmp_path))
    model(tmp_path, auto_map={"AutoModelForCausalLM": "modeling_own.Another"})
    third = request(trusted(tmp_path))
    assert len({plain, first, second, third}) == 4
    model(tmp_path, auto_map=AUTO_MAP)
    assert request(trusted(tmp_path)) == first


def test_the_flag_changes_nothing_for_a_checkpoint_without_code(tmp_path: Path) -> None:
    model(tmp_path)
    assert request(trusted(tmp_path)) == request(open_source(str(tmp_path), weights="none"))


def test_an_unknown_architecture_stays_unsupported_and_says_why(tmp_path: Path) -> None:
    model(tmp_path, auto_map=AUTO_MAP, architectures=["OwnForCausalLM"])
    for trust in (False, True):
        with pytest.raises(ModelError, match="OwnForCausalLM is not supported") as caught:
            open_source(str(tmp_path), weights="none", trust_remote_code=trust)
        assert "is not run, trusted or not" in caught.value.why


def test_too_much_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model(tmp_path, auto_map=AUTO_MAP)
    monkeypatch.setattr(remote_code, "MOST_BYTES", 8)
    with pytest.raises(ModelError, match="too much code"):
        trusted(tmp_path)
