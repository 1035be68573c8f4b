"""The commands of vcc. Only the one that is named is read: a boot has no time for the others."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from vcc.cli.console import out

COMMANDS: Mapping[str, tuple[str, str]] = {
    "compile": ("vcc.cli.compile", "compile_command"),
    "run": ("vcc.cli.run", "run_command"),
    "explain": ("vcc.cli.explain", "explain_command"),
    "diff": ("vcc.cli.diff", "diff_command"),
    "prewarm": ("vcc.cli.prewarm", "prewarm_command"),
    "tune": ("vcc.cli.tune", "tune_command"),
    "push": ("vcc.cli.push", "push_command"),
    "pull": ("vcc.cli.pull", "pull_command"),
    "export": ("vcc.cli.export", "export_command"),
    "import": ("vcc.cli.import_pack", "import_command"),
    "verify": ("vcc.cli.verify", "verify_command"),
    "sign": ("vcc.cli.sign", "sign_command"),
    "doctor": ("vcc.cli.doctor", "doctor_command"),
}
"""Module and function of each."""

AFTER_DASHES: Mapping[str, tuple[str, str]] = {"run": ("vcc.cli.run_guest", "guest_command")}
"""What a command means when its line has a `--`."""

Abort = typer.Abort

# Typer carries its own click since 0.27; its public BadParameter leads to the base of both.
ClickError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

GROUPS: Mapping[str, tuple[str, str]] = {
    "inspect": ("vcc.cli.inspect", "app"),
    "passes": ("vcc.cli.passes", "app"),
    "trust": ("vcc.cli.trust", "app"),
    "cache": ("vcc.cli.cache", "app"),
}


def app_for(words: Sequence[str] = ()) -> typer.Typer:
    """The application.

    Args:
        words: of the command line; its first may name the one command that is needed. Help and
            mistakes need them all.
    """
    app = typer.Typer(
        name="vcc",
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Compile a PyTorch model once, keep the result, boot from it without compiling.",
    )
    app.callback()(root)
    first = words[0] if words else ""
    known = first in COMMANDS or first in GROUPS
    for name, place in COMMANDS.items():
        if "--" in words:
            place = AFTER_DASHES.get(name, place)
        if name == first or not known:
            app.command(name)(_read(*place))
    for name, place in GROUPS.items():
        if name == first or not known:
            app.add_typer(_read(*place), name=name)
    return app


def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="print the version",
            callback=lambda wanted: _version(wanted),
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Set up logging for every command."""
    from vcc.engine.config.environment import read_environment

    level = read_environment().log_level.upper()
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")


def _version(wanted: bool) -> None:
    if wanted:
        from vcc import __version__

        out(f"vcc {__version__}")
        raise typer.Exit


def _read(module: str, name: str) -> Any:
    return getattr(import_module(module), name)
