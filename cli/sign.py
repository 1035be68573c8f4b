"""vcc sign: say with a key that artifacts are what their builder made; make such a key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from vcc.cli import options
from vcc.cli.console import err, note, out, out_json, short

if TYPE_CHECKING:
    from vcc.cache.errors import VccError
    from vcc.cache.request import Entry
    from vcc.cache.store import Store
    from vcc.cache.trust.secretkey import SecretKey
    from vcc.cache.trust.signature import Terms
    from vcc.cache.trust.statement import Statement


def sign_command(
    names: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="[ID|MODEL]...", help="what to sign", show_default=False),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="all artifacts of the store that this account built")
    ] = False,
    key: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--key", metavar="FILE", help="the private key; also VCC_SIGNING_KEY (PEM)"),
    ] = None,
    passphrase_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--passphrase-file",
            metavar="FILE",
            help="the key's passphrase; also VCC_SIGNING_PASSPHRASE",
        ),
    ] = None,
    builder: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--builder", metavar="NAME", help="who built it, such as ci-main"),
    ] = None,
    source_commit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--source-commit", metavar="SHA", help="the full hash it was built from"),
    ] = None,
    claim: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--claim", metavar="NAME=VALUE", help="more to say of it (repeatable)"),
    ] = None,
    epoch: Annotated[
        int, typer.Option("--epoch", metavar="N", min=0, help="a number that only grows")
    ] = 0,
    expires: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--expires", metavar="90d", help="how long it counts; for good by default"),
    ] = None,
    foreign: Annotated[
        bool, typer.Option("--foreign", help="sign also what this account did not build")
    ] = False,
    new_key: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--new-key", metavar="FILE", help="make a key pair: FILE and FILE.pub"),
    ] = None,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--name", metavar="NAME", help="with --new-key: trust it here by this name"),
    ] = None,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> None:
    """Sign stored artifacts, or make a key to sign with."""
    if new_key is not None:
        _make_key(new_key, passphrase_file, name, as_json=json)
        return
    from vcc.cache.store import Store
    from vcc.cache.trust.secretkey import load_secret
    from vcc.cache.trust.signature import Terms

    terms = Terms(builder or "", source_commit or "", _claims(claim), epoch, _seconds(expires))
    secret = load_secret(key, passphrase_file)
    store = replace(Store.open(cache_dir), lower=())  # what lies below is not ours to write to
    entries = _chosen(store, names or [], every)
    signed = _sign_all(store, entries, secret, terms, every=every, foreign=foreign)
    signed.show(secret, as_json=json)


@dataclass(frozen=True, slots=True)
class Signed:
    """What came of it: statements, artifacts that were left out, and errors."""

    done: tuple[tuple[Entry, Statement], ...]
    left_out: tuple[tuple[Entry, VccError], ...]
    failed: tuple[tuple[Entry, VccError], ...]

    def show(self, key: SecretKey, *, as_json: bool) -> None:
        """Print it; a part that failed is exit code 10, and nothing signed the error itself."""
        from vcc.cache.errors import Exit

        if self.failed and not self.done:
            raise self.failed[0][1]
        if as_json:
            out_json(self.as_dict(key))
        for entry, error in self.failed:
            err(f"error: artifact {short(entry.artifact)} was not signed: {error}")
        if not as_json:
            self._show_text(key)
        if self.failed:
            raise typer.Exit(Exit.PARTIAL)

    def as_dict(self, key: SecretKey) -> dict[str, object]:
        """The JSON of `--json`."""
        import msgspec

        return {
            "key": key.public,
            "signed": [
                {"title": entry.title, **_without_signature(msgspec.to_builtins(made))}
                for entry, made in self.done
            ],
            "left_out": [_row(entry, error) for entry, error in self.left_out],
            "failed": [_row(entry, error) for entry, error in self.failed],
        }

    def _show_text(self, key: SecretKey) -> None:
        for entry, error in self.left_out:
            note(f"artifact {short(entry.artifact)} was left out: {error.why}")
        for entry, _ in self.done:
            out(f"signed: {short(entry.artifact)} {entry.title}")
        out(f"{len(self.done)} signed by key {key.public}")


def _without_signature(fields: dict[str, Any]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name not in ("signature", "key")}


def _row(entry: Entry, error: VccError) -> dict[str, object]:
    return {"artifact": entry.artifact, "title": entry.title, "error": error.as_dict()}


def _sign_all(
    store: Store,
    entries: tuple[Entry, ...],
    key: SecretKey,
    terms: Terms,
    *,
    every: bool,
    foreign: bool,
) -> Signed:
    from vcc.cache.errors import VccError
    from vcc.cache.trust.signing import NotOurs, sign_entry

    done: list[tuple[Entry, Statement]] = []
    left_out: list[tuple[Entry, VccError]] = []
    failed: list[tuple[Entry, VccError]] = []
    for entry in entries:
        try:
            done.append((entry, sign_entry(store, entry, key, terms, foreign=foreign)))
        except VccError as error:
            # Who says --all means those that can be signed; a name means that very one.
            skipped = every and isinstance(error, NotOurs)
            (left_out if skipped else failed).append((entry, error))
    return Signed(tuple(done), tuple(left_out), tuple(failed))


def _chosen(store: Store, names: list[str], every: bool) -> tuple[Entry, ...]:
    from vcc.cache.errors import MissingArtifact, UsageError
    from vcc.cli.stored import find_entry

    if bool(names) == every:
        raise UsageError(
            "what to sign is not clear",
            "ids and models do not go with --all" if names else "neither an artifact nor --all",
            "vcc sign ID|MODEL, or vcc sign --all",
        )
    entries = tuple(store.entries()) if every else tuple(find_entry(store, n) for n in names)
    if not entries:
        raise MissingArtifact(
            "there is nothing to sign",
            f"no artifacts in {store.root}",
            "vcc compile MODEL makes one; --cache-dir DIR or VCC_CACHE_DIR names another store",
        )
    return tuple({entry.artifact: entry for entry in entries}.values())


def _claims(texts: list[str] | None) -> dict[str, str]:
    from vcc.cache.errors import UsageError

    pairs = [text.partition("=") for text in texts or ()]
    bad = next((label for label, mark, value in pairs if not (label and mark and value)), None)
    if bad is not None:
        raise UsageError(f"--claim {bad} is no claim", "", "--claim ref=refs/heads/main")
    found = {label: value for label, _, value in pairs}
    if len(found) != len(pairs):
        raise UsageError(
            "a claim is made twice",
            ", ".join(label for label, _, _ in pairs),
            "give each label once",
        )
    return found


def _seconds(text: str | None) -> int:
    from vcc.cache.care.filters import DURATIONS, parse_duration
    from vcc.cache.errors import UsageError

    try:
        seconds = 0 if text is None else int(parse_duration(text))
        if text is not None and seconds < 1:
            raise ValueError(text)
    except ValueError as error:
        raise UsageError(f"--expires {text} is not a duration", "", DURATIONS) from error
    return seconds


def _make_key(file: Path, passphrase_file: Path | None, name: str | None, *, as_json: bool) -> None:
    from vcc.cache.trust.secretkey import passphrase, write_new

    key = write_new(file, passphrase(passphrase_file))
    public = f"{file}.pub"
    if name is not None:
        _trust(key.public, name)
    if as_json:
        out_json({"key": key.public, "file": str(file), "public": public, "trusted": name})
        return
    out(f"{file}: the private key, for who signs\n{public}: the public key, for who loads")
    out(f"key {key.public}" + (f", trusted here as {name}" if name else ""))
    if name is None:
        err(f"hint: vcc trust add {public} trusts it")


def _trust(public: str, name: str) -> None:
    import time

    from vcc.cache.settings import read_settings
    from vcc.cache.trust.keyring import TrustedKey, add_key
    from vcc.cache.trust.place import TrustPlace

    place = TrustPlace.open(read_settings().trust_dir)
    add_key(place, TrustedKey(key=public, name=name, added=int(time.time())))
