"""Prompt: what a user wants answered, before any tokenizer or model is at hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: text, or token ids for a model without a tokenizer.

    `lora` names its adapter: "" is the model without one, None says nothing.
    """

    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    lora: str | None = None
