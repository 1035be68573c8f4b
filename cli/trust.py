"""vcc trust: whose signatures count here, which remotes, and what is revoked."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vcc.cli import options
from vcc.cli.console import columns, out, out_json

if TYPE_CHECKING:
    from vcc.cache.trust.overview import Overview
    from vcc.cache.trust.place import TrustPlace

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Say whose artifacts are loaded here: keys, remotes, revocations.",
)

Key = Annotated[
    Optional[str],  # noqa: UP045
    typer.Argument(metavar="[KEY]", help="a trusted key: its name or digits", show_default=False),
]
RemoteUrl = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--remote", metavar="URL", help="a remote instead of a key"),
]


@app.command("add")
def trust_add(
    key: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[FILE.pub|HEX]", help="a public key", show_default=False),
    ] = None,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--name", metavar="NAME", help="for people; the file's name by default"),
    ] = None,
    builder: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--builder", metavar="NAME", help="a builder that it may speak for (repeatable)"
        ),
    ] = None,
    comment: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--comment", metavar="TEXT", help="whose it is, where it is used"),
    ] = None,
    remote: RemoteUrl = None,
    json: options.Json = False,
) -> None:
    """Trust a key, or a remote from which pulls count as own builds."""
    from vcc.cache.trust.keyring import TrustedKey, add_key
    from vcc.cache.trust.publickey import read_public_key

    place = _place()
    if _one_of(key, remote) == "remote":
        _remote(place, str(remote), trusted=True, as_json=json)
        return
    public = read_public_key(str(key))
    named = name or _name_of(str(key), public)
    new = TrustedKey(
        key=public,
        name=named,
        comment=comment or "",
        added=int(time.time()),
        builders=tuple(builder or ()),
    )
    path = add_key(place, new)
    if json:
        out_json({"key": public, "name": named, "builders": list(new.builders), "file": path})
        return
    speaks = f" for {', '.join(new.builders)}" if new.builders else ""
    out(f"trusted: {named}{speaks}\n{public}\n{path}")


@app.command("ls")
def trust_ls(
    policy: options.Policy = None,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> None:
    """Show the policy, trusted keys and remotes, revocations, the rules of prod."""
    from vcc.cache.settings import cache_root, read_settings
    from vcc.cache.trouble import storage
    from vcc.cache.trust.overview import overview

    if policy is not None:
        options.check_choice("--policy", policy, options.POLICIES)
    named = policy or read_settings().policy
    root = cache_root(cache_dir)
    with storage("look at", str(root)):
        found = overview(root, named, _place())
    if json:
        out_json(_as_dict(found))
    else:
        out(_as_text(found))


@app.command("rm")
def trust_rm(key: Key = None, remote: RemoteUrl = None, json: options.Json = False) -> None:
    """Trust a key or a remote no more."""
    from vcc.cache.trust.keyring import Keyring, remove_key

    place = _place()
    if _one_of(key, remote) == "remote":
        _remote(place, str(remote), trusted=False, as_json=json)
        return
    ring = Keyring.read(place)
    found = ring.named(str(key))
    remove_key(place, found, ring.paths[found.key])
    if json:
        out_json({"key": found.key, "name": found.name, "removed": True})
    else:
        out(f"not trusted any more: {found.name}\n{found.key}")


@app.command("revoke")
def trust_revoke(
    key: Key = None,
    artifact: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--artifact", metavar="ID", help="an artifact instead of a key"),
    ] = None,
    why: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--why", metavar="TEXT", help="shown to who is refused"),
    ] = None,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> None:
    """Refuse a key or an artifact from now on, under every policy."""
    from vcc.cache.trust.revocations import revoke

    place = _place()
    if _one_of(key, artifact, "--artifact") == "--artifact":
        digest, what = _artifact(str(artifact), cache_dir), "artifact"
        path = revoke(place, artifact=digest, why=why or "")
    else:
        digest, what = _any_key(place, str(key)), "key"
        path = revoke(place, key=digest, why=why or "")
    if json:
        out_json({what: digest, "why": why or "", "file": path})
    else:
        out(f"revoked: {what} {digest}\n{path}")


@app.command("prod")
def trust_prod(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="the rules, JSON", show_default=False)
    ],
    json: options.Json = False,
) -> None:
    """Check rules of policy prod and make them this account's."""
    import msgspec

    from vcc.cache.named_files import read_named
    from vcc.cache.trouble import storage
    from vcc.cache.trust.place import MAX_TRUST_FILE
    from vcc.cache.trust.prod import parse_rules, write_rules

    with storage("read", str(file)):
        data = read_named(file, MAX_TRUST_FILE)
    rules = parse_rules(data, str(file))
    path = write_rules(_place(), rules)
    if json:
        out_json({"file": path, "rules": msgspec.to_builtins(rules)})
        return
    out("\n".join(["policy prod asks for", *_rules(rules.__struct_fields__, rules), path]))


def _place() -> TrustPlace:
    from vcc.cache.settings import read_settings
    from vcc.cache.trust.place import TrustPlace

    return TrustPlace.open(read_settings().trust_dir)


def _one_of(key: str | None, other: str | None, name: str = "remote") -> str:
    """Which of two was given; both or none is an error."""
    from vcc.cache.errors import UsageError

    if (key is None) == (other is None):
        option = name if name.startswith("--") else f"--{name}"
        raise UsageError("what is meant is not clear", f"give either a key or {option}")
    return "key" if other is None else name


def _name_of(given: str, public: str) -> str:
    if given.lower() == public:
        return f"key-{public[:8]}"
    return Path(given).name.removesuffix(".pub").removesuffix(".pem")


def _any_key(place: TrustPlace, text: str) -> str:
    """A key to revoke need not be one that is trusted here."""
    from vcc.cache.errors import UsageError
    from vcc.cache.trust.keyring import Keyring
    from vcc.cache.trust.publickey import KEY_HEX

    if KEY_HEX.match(text):
        return text
    try:
        return Keyring.read(place).named(text).key
    except UsageError as error:
        hint = "vcc trust ls lists them; --artifact ID revokes an artifact"
        raise UsageError(error.what, error.why, hint) from error


def _artifact(text: str, cache_dir: Path | None) -> str:
    """An artifact to revoke need not be in the store."""
    from vcc.cache.digest import is_digest
    from vcc.cache.store import Store
    from vcc.cli.stored import find_entry

    return text if is_digest(text) else find_entry(Store.open(cache_dir), text).artifact


def _remote(place: TrustPlace, text: str, *, trusted: bool, as_json: bool) -> None:
    from vcc.cache.remote.url import parse_url
    from vcc.cache.trust.remotes import change_remotes

    url = parse_url(text).shown
    changed = change_remotes(place, url, trusted=trusted)
    if as_json:
        out_json({"remote": url, "trusted": trusted, "changed": changed})
        return
    state = "trusted" if trusted else "not trusted any more"
    out(f"{state}: {url}" if changed else f"nothing to change: {url}")


def _as_dict(found: Overview) -> dict[str, object]:
    import msgspec

    return {
        "policy": found.policy,
        "because": found.because,
        "folders": [str(found.place.user), str(found.place.system)],
        "keys": [
            {**msgspec.to_builtins(one), "file": found.ring.paths[one.key]}
            for one in found.ring.keys
        ],
        "remotes": list(found.remotes),
        "revoked": msgspec.to_builtins(found.revoked),
        "prod": [msgspec.to_builtins(rules) for rules in found.rules],
    }


def _as_text(found: Overview) -> str:
    lines = [f"policy {found.policy}: {found.because}"]
    lines.append(f"trust folders: {found.place.user}, {found.place.system}")
    keys = [
        (
            one.name,
            one.key[:16],
            ", ".join(one.builders) or "-",
            one.comment or "-",
            _state(found, one.key),
        )
        for one in found.ring.keys
    ]
    if keys:
        lines += ["", columns([("key", "digits", "builders", "comment", "state"), *keys])]
    else:
        lines.append("no trusted keys")
    lines += [f"remote {url}" for url in found.remotes]
    lines += [f"artifact {name[:12]} {one}" for name, one in found.revoked.artifacts.items()]
    known = {one.key for one in found.ring.keys}
    strangers = {k: v for k, v in found.revoked.keys.items() if k not in known}
    lines += [f"key {name[:16]} {one}" for name, one in strangers.items()]
    for rules in found.rules:
        lines += ["", "policy prod asks for", *_rules(rules.__struct_fields__, rules)]
    return "\n".join(lines)


def _state(found: Overview, key: str) -> str:
    return str(found.revoked.keys.get(key, "counts"))


def _rules(names: tuple[str, ...], rules: object) -> list[str]:
    shown = ((name, getattr(rules, name)) for name in names)
    return [f"  {name}: {_value(value)}" for name, value in shown if value not in ({}, ())]


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{label}={pattern}" for label, pattern in value.items())
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
