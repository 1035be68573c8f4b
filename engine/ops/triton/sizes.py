"""Sizes of tiles; apart, because layers need them where no build is near."""

from __future__ import annotations


def power_of_two(value: int) -> int:
    """The smallest power of two that is at least `value`."""
    return 1 << max(value - 1, 0).bit_length()


def head_sizes(q_width: int, k_width: int, half: int, head_dim: int) -> dict[str, int]:
    """Compile-time sizes of kernels that rotate the heads of a row.

    Args:
        q_width, k_width: values of a row of queries and of keys.
        half: angles of a head.
        head_dim: values of a head.
    """
    heads, kv_heads = q_width // head_dim, k_width // head_dim
    return {
        "HEADS": heads,
        "HEAD_LANES": power_of_two(heads),
        "KV_HEADS": kv_heads,
        "KV_LANES": power_of_two(kv_heads),
        "HALF": half,
        "LANES": power_of_two(half),
        "REST_LANES": power_of_two(head_dim - 2 * half),
        "HEAD_DIM": head_dim,
    }
