"""Report of a run: answers, the ledger of phases and the counters, as JSON and as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vcc.cache.words import amount
from vcc.engine.monitor import Counters, Ledger, rounded

PHASES = (
    "import",
    "resolve",
    "verify",
    "compile",
    "weights",
    "pieces",
    "golden",
    "first_token",
    "generate",
    "other",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One prompt's result.

    Attributes:
        prompt: its text; None for token ids.
        text: the answer; None for a model without a tokenizer.
        token_ids: its tokens.
        finish_reason: why it ended.
        not_finite: how many tokens were chosen from logits without a largest one: NaN or infinity.
    """

    prompt: str | None
    text: str | None
    token_ids: tuple[int, ...]
    finish_reason: str
    not_finite: int = 0

    def as_dict(self) -> dict[str, object]:
        """The JSON of one answer."""
        return {
            "prompt": self.prompt,
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "not_finite": self.not_finite,
        }


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did.

    Attributes:
        artifact: id of the artifact that was booted; None for an in-process compile not stored.
        answers: in the order of the prompts.
        phases: seconds per phase; they sum to `seconds`.
        beside: seconds of work in other threads, meanwhile; in no sum.
        seconds: wall time from process start.
        first_token_seconds: from process start to the first token; None when none came.
        tokens_per_second: answered tokens by time after the first token; None below two tokens.
        counters: see `Counters.as_dict`.
        notes: decisions and degradations, one line each.
        lacking: whether recording matrix products would make the next run faster.
    """

    artifact: str | None
    answers: tuple[Answer, ...]
    phases: Mapping[str, float]
    seconds: float
    first_token_seconds: float | None
    tokens_per_second: float | None
    counters: Mapping[str, object]
    notes: tuple[str, ...] = ()
    beside: Mapping[str, float] = field(default_factory=dict)
    lacking: bool = False

    def as_dict(self) -> dict[str, object]:
        """The JSON of `--json` and `--report`."""
        return {
            "artifact": self.artifact,
            "prompts": [answer.as_dict() for answer in self.answers],
            "phases": rounded(self.phases),
            "beside": rounded(self.beside),
            "seconds": round(self.seconds, 6),
            "first_token_seconds": _rounded(self.first_token_seconds),
            "tokens_per_second": _rounded(self.tokens_per_second),
            "counters": dict(self.counters),
            "notes": list(self.notes),
        }


def make_report(
    ledger: Ledger,
    counters: Counters,
    answers: Sequence[Answer],
    *,
    artifact: str | None,
    first_token_seconds: float | None,
    notes: Sequence[str] = (),
    lacking: bool = False,
) -> RunReport:
    """Close the account of a run."""
    found, seconds = ledger.account()
    phases = {name: found.get(name, 0.0) for name in PHASES}
    phases |= {name: value for name, value in found.items() if name not in phases}
    tokens = sum(len(answer.token_ids) for answer in answers)
    later = phases["generate"]
    return RunReport(
        artifact=artifact,
        answers=tuple(answers),
        phases=phases,
        seconds=seconds,
        first_token_seconds=first_token_seconds,
        tokens_per_second=(tokens - 1) / later if tokens > 1 and later > 0 else None,
        counters=counters.as_dict(),
        notes=tuple(notes),
        beside=ledger.beside,
        lacking=lacking,
    )


def ledger_lines(report: RunReport) -> list[str]:
    """The account for people: phases, speed, counters, and a line for each kind of fall-back."""
    lines = account_lines(report.phases, report.seconds, report.counters)
    if report.first_token_seconds is not None:
        rate = report.tokens_per_second
        more = "" if rate is None else f", then {rate:,.1f} tokens/s"
        lines.insert(1, f"speed     first token after {_time(report.first_token_seconds)}{more}")
    if report.beside:
        lines.insert(1, f"beside    {_spent(report.beside)}")
    return lines


def account_lines(
    phases: Mapping[str, float], seconds: float, counters: Mapping[str, object]
) -> list[str]:
    """One line of phases, one of counters, one for each fall-back."""
    counts = {k: v for k, v in counters.items() if k != "fallbacks"}
    lines = [
        f"phases    {_spent(phases)}  total {_time(seconds)}",
        "counters  " + "  ".join(f"{name} {value}" for name, value in counts.items()),
    ]
    fallbacks = counters.get("fallbacks")
    if isinstance(fallbacks, Mapping):
        lines += [
            f"fallback  {amount(steps, 'steps')}: {reason}" for reason, steps in fallbacks.items()
        ]
    return lines


def _spent(phases: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {_time(value)}" for name, value in phases.items() if value)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
