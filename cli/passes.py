"""vcc passes: which there are, what each is, and whether one keeps a model's results."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from vcc.cli import options
from vcc.cli.console import columns, out, out_json

if TYPE_CHECKING:
    from vcc.engine.passes.base import Pass
    from vcc.engine.passes.checked import Checked

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Look at graph passes: list them, show one, check that one keeps results.",
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="PASS",
        help="a pass of vcc's, an installed one, or module:NAME",
        show_default=False,
    ),
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="[MODEL]",
        help="the model it is run on",
        autocompletion=options.complete_model,
    ),
]
Against = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--compilation-config", metavar="JSON", help="any field of CompilationConfig"),
]


@app.command("ls")
def ls_command(json: options.Json = False) -> None:
    """List all passes in the order in which they run, and those that packages bring."""
    from vcc.engine.passes.apply import PASSES
    from vcc.engine.user_passes import entry_points

    installed = entry_points()
    rows = [_row(one) for one in PASSES]
    if json:
        out_json({"passes": rows, "installed": installed})
        return
    names = ("name", "on", "where", "version", "what", "needs")  # which may be long
    out(columns([names, *(tuple(row[name] for name in names) for row in rows)]))
    if installed:
        out("\ninstalled\n" + columns([(f"  {n}", where) for n, where in installed.items()]))


@app.command("show")
def show_command(name: Name, json: options.Json = False) -> None:
    """Show one pass: what it does, where it runs, what its version covers."""
    import inspect

    from vcc.engine.passes.checked import find

    one = find(name)
    row = _row(one)
    row["parameters"] = dict(one.parameters)
    row["source"] = inspect.getsourcefile(one.rewrite) or ""
    row["doc"] = inspect.cleandoc(inspect.getdoc(inspect.getmodule(one.rewrite)) or "")
    if json:
        out_json(row)
        return
    shown = ("name", "what", "on", "where", "needs", "version", "parameters", "source")
    out(columns([(key, _text(row[key])) for key in shown if row[key]]))
    out(f"\n{row['doc']}")


@app.command("check")
def check_command(
    name: Name,
    model: Model = "demo",
    shape: options.InputShapes = None,
    config: Against = None,
    keep: options.Keep = None,
    json: options.Json = False,
) -> None:
    """Run a pass on a model's graph in fp32 and compare results before and after."""
    from vcc.cli.request import ModelOptions, build_request
    from vcc.engine.passes.checked import check

    asked = ModelOptions(
        model, target="cpu", dtype="fp32", inputs=shape, config=config, weights=None, keep=keep
    )
    found = check(name, build_request(asked))
    if json:
        out_json(_as_dict(found))
    else:
        out(_as_text(found, model))
    if found.verdict:
        raise typer.Exit(1)


def _row(one: Pass) -> dict[str, Any]:
    import inspect

    from vcc.engine.passes.version import RULES

    rule = RULES.get(one.name)
    needs = sorted(rule.needs_ops) if rule else []
    return {
        "name": one.name,
        "on": f"from -{rule.from_level.name}" if rule and rule.from_level else "when named",
        "where": str(one.gate),
        "needs": ", ".join((*needs, *one.needs)),
        "version": one.version,
        "what": (inspect.getdoc(one.rewrite) or "").split("\n")[0],
    }


def _text(value: Any) -> str:
    return ", ".join(f"{k} = {v}" for k, v in value.items()) if isinstance(value, dict) else value


def _as_dict(found: Checked) -> dict[str, Any]:
    proof = found.proof
    return {
        "report": asdict(proof.report),
        "steps": [dict(sizes) for sizes in proof.sizes],
        "error": proof.error,
        "exact": proof.exact,
        "settled": proof.settled,
        "verdict": found.verdict or "equal",
    }


def _as_text(found: Checked, model: str) -> str:
    from vcc.cli.pass_report import said

    proof = found.proof
    report = asdict(proof.report)
    steps = f"{len(proof.sizes)} step sizes"
    result = "bit for bit equal" if proof.exact else f"error {proof.error:.1e} of the largest value"
    lines = [f"{report['name']} on {model}: {said(report)}", f"results on {steps}: {result}"]
    lines += [f"left: {reason}" for reason in report["refused"]]
    if not proof.settled:
        lines.append("a second run finds more to do: let it repeat until nothing matches")
    return "\n".join([*lines, found.verdict or "ok"])
