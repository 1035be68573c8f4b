"""Where the store lies and whom it trusts. The one reader of the environment in `cache/`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.errors import ConfigError

VARIABLE = "VCC_CACHE_DIR"
POLICIES = ("own", "signed", "prod")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}I": 1024**power for power, unit in enumerate("KMGT", 1)}


@dataclass(frozen=True, slots=True)
class Settings:
    """The variables that the store knows.

    Args:
        root: VCC_CACHE_DIR, the local store; None for the user's cache folder.
        lower: VCC_LOWER_DIRS, read-only stores below it, first one first, parted by colons.
        remote: VCC_REMOTE, the URL that a miss is asked of; empty for none.
        policy: VCC_POLICY, whose artifacts are loaded: one of `POLICIES`, or empty for the
            default of the place.
        trust_dir: VCC_TRUST_DIR, the folder of trusted keys; None for the user's config folder.
        strict: VCC_STRICT, storage trouble is an error and not a warning.
        offline: VCC_OFFLINE, the remote is never asked.
        max_size: VCC_MAX_SIZE, bytes that the local store is kept under; 0 for no limit.
        trusted_uids: VCC_TRUSTED_UIDS, accounts whose stores and folders are as good as our own.
    """

    root: Path | None
    lower: tuple[Path, ...]
    remote: str
    policy: str
    trust_dir: Path | None
    strict: bool
    offline: bool
    max_size: int
    trusted_uids: tuple[int, ...] = ()


def read_settings(variables: Mapping[str, str] | None = None) -> Settings:
    """Read the environment once.

    Args:
        variables: used instead of the process environment (tests).

    Raises:
        ConfigError: a value that cannot be read, with the variable's name.
    """
    env = os.environ if variables is None else variables
    policy = env.get("VCC_POLICY", "")
    if policy not in ("", *POLICIES):
        raise ConfigError(f"VCC_POLICY={policy} is not a policy", f"known: {', '.join(POLICIES)}")
    return Settings(
        root=_path(env.get(VARIABLE, "")),
        lower=tuple(_absolute(part) for part in env.get("VCC_LOWER_DIRS", "").split(":") if part),
        remote=env.get("VCC_REMOTE", ""),
        policy=policy,
        trust_dir=_path(env.get("VCC_TRUST_DIR", "")),
        strict=_switch(env, "VCC_STRICT"),
        offline=_switch(env, "VCC_OFFLINE"),
        max_size=parse_size(env.get("VCC_MAX_SIZE", "0"), "VCC_MAX_SIZE"),
        trusted_uids=trusted_uids(env),
    )


def trusted_uids(variables: Mapping[str, str] | None = None) -> tuple[int, ...]:
    """Account ids of VCC_TRUSTED_UIDS, parted by commas.

    Raises:
        ConfigError: one is not an account id.
    """
    env = os.environ if variables is None else variables
    text = env.get("VCC_TRUSTED_UIDS", "")
    words = [word.strip() for word in text.split(",") if word.strip()]
    bad = next((word for word in words if not (word.isdecimal() and word.isascii())), None)
    if bad is not None:
        raise ConfigError(
            f"VCC_TRUSTED_UIDS={text} is not a list of account ids",
            f"{bad!r} is no number",
            "such as VCC_TRUSTED_UIDS=1000,1001; id -u NAME gives one",
        )
    return tuple(int(word) for word in words)


def user_trust_folder(variables: Mapping[str, str] | None = None) -> Path:
    """The folder of trusted keys: VCC_TRUST_DIR, else `vcc/trust` in the user's config folder.

    The config folder is XDG_CONFIG_HOME or ~/.config, as platformdirs has it, whose import would
    cost a warm boot more than all that trust does there.
    """
    env = os.environ if variables is None else variables
    named = env.get("VCC_TRUST_DIR", "")
    if named:
        return _absolute(named)
    config = os.path.expanduser(env.get("XDG_CONFIG_HOME", "").strip() or "~/.config")
    if config.startswith("~"):  # an account without a home: it has no such folder
        config = os.devnull
    return _absolute(config) / "vcc" / "trust"


def signing_secrets(variables: Mapping[str, str] | None = None) -> tuple[str, str]:
    """VCC_SIGNING_KEY (a private key, PEM) and VCC_SIGNING_PASSPHRASE; empty where not set.

    They are in no `Settings`, so that no message or report can show them.
    """
    env = os.environ if variables is None else variables
    return env.get("VCC_SIGNING_KEY", ""), env.get("VCC_SIGNING_PASSPHRASE", "")


def cache_root(override: Path | None = None) -> Path:
    """The root of the store: `override`, else VCC_CACHE_DIR, else the user's cache folder.

    The folder need not exist. A relative path counts from the working directory.
    """
    if override is not None:
        return Path(os.path.abspath(override))
    named = os.environ.get(VARIABLE, "")
    if named:
        return _absolute(named)
    import platformdirs  # not needed where the place is named

    return Path(platformdirs.user_cache_dir("vcc", appauthor=False))


def parse_size(text: str, what: str) -> int:
    """Bytes of a size such as `0`, `512`, `20GB` (powers of 1000) or `20GiB` (of 1024).

    Raises:
        ConfigError: it is none; `what` names the option or variable.
    """
    digits = text.strip().upper().removesuffix("B")
    number = digits.rstrip("KMGTI")
    try:
        size = float(number) * _UNITS[digits[len(number) :].strip()]
        if not 0 <= size < 1 << 63:
            raise ValueError(number)
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{what}={text} is not a size", "", "such as 20GB or 512MiB") from error
    return int(size)


def _path(text: str) -> Path | None:
    return _absolute(text) if text else None


def _absolute(text: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(text)))


def _switch(env: Mapping[str, str], name: str) -> bool:
    value = env.get(name, "").lower()
    if value not in (*_TRUE, *_FALSE):
        raise ConfigError(f"{name}={value} is neither on nor off", "", f"{name}=1 or {name}=0")
    return value in _TRUE
