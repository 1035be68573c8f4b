"""What to install for the parts of vcc that need more than its dependencies.

Hints name these packages and not an extra of vcc: vcc is installed from a checkout or from a wheel
of your own, and its name on PyPI belongs to another project.
"""

from __future__ import annotations

REQUIREMENTS = {
    "cryptography": "cryptography>=43",
    "huggingface-hub": "huggingface-hub>=0.30",
    "jinja2": "jinja2>=3.1",
    "obstore": "obstore>=0.11",
    "oras": "oras>=0.2.43",
    "requests": "requests>=2.32",
    "transformers": "transformers>=4.57",
    "urllib3": "urllib3>=2.2",
}
"""The requirements of the extras `hf`, `remote` and `sign` in pyproject.toml; a test compares."""

CLIENTS = ("obstore", "oras", "requests", "urllib3")
"""The clients of S3 and of registries."""


def install(*packages: str) -> str:
    """The command that installs them, in the versions that vcc takes.

    Args:
        packages: names from `REQUIREMENTS`.
    """
    return "pip install " + " ".join(f"'{REQUIREMENTS[name]}'" for name in packages)
