"""vcc cache: what lies in the store, and what may go. One file a group of commands."""

from __future__ import annotations

import typer

from vcc.cli.cache_keep import pin_command, unlock_command, unpin_command
from vcc.cli.cache_list import dir_command, du_command, ls_command, stats_command
from vcc.cli.cache_remove import gc_command, prune_command, rm_command
from vcc.cli.cache_verify import repair_command, verify_command

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Look after the store: list, measure, remove, keep, check.",
)
for name, command in (
    ("ls", ls_command),
    ("du", du_command),
    ("stats", stats_command),
    ("dir", dir_command),
    ("rm", rm_command),
    ("prune", prune_command),
    ("gc", gc_command),
    ("pin", pin_command),
    ("unpin", unpin_command),
    ("verify", verify_command),
    ("repair", repair_command),
    ("unlock", unlock_command),
):
    app.command(name)(command)
