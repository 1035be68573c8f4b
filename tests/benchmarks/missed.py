"""Why limits are missed and what was tried: shown below the figures of such a benchmark.

By the name of the JSON file, `gpu-` and what follows a hyphen left out. There are no figures of
the tables in it, so that these texts stay when those change.
"""

from __future__ import annotations

WHY = {
    "compile": (
        "What is left is g++ on the wrapper that AOTInductor writes for each piece. Tried: "
        "Inductor loaded once before workers fork, three pieces at once on two cores, wrappers "
        "without optimisation (slower calls), precompiled headers (dearer than they save in a "
        "build of three pieces)."
    ),
    "steps": (
        "Two fifths of such a prefill are the attention kernel, which both sides share; pieces "
        "are pinned to x86-64-v3 where eager mode uses what the machine has, which may be the "
        "rest and was not measured."
    ),
    "graphs": (
        "All of it is work of the host: entries read from the GEMM store, kernels loaded, nodes "
        "added. On machines with the same GPU and other hosts the first graph took 21 to 55 ms "
        "and all of them 133 to 212 ms. The limit is for 51 descriptors, the figure for those of "
        "a default build."
    ),
    "decode": (
        "The host gap is what a graph and the kernel before it take to launch. Stored products "
        "have full edges, which are cheaper than programmatic ones "
        "([0022](decisions/0022-full-edges-of-stored-products.md)); the next step is launched "
        "before a token is seen, so that the device does not wait for the host."
    ),
    "boot": (
        "The regional peer compiles one layer and uses it for all, and captures seven sizes, vcc "
        "35. Most of vcc's time is the import of Python's modules and the request, which is work "
        "of the host."
    ),
    "forwards": (
        "The classifier of ResNet was rounded before its bias and once more behind it, where "
        "torch rounds once. Over fourteen draws of images its largest error was 1.21 times the "
        "bound (1.03 to 1.33), that of all 0.91 times. Results are summed in fp32 since then, "
        "which was computed without a device."
    ),
    "ops": (
        "Kernels with fp8 results are bound by instructions, others by the rows under way; what "
        "was shortened and what was tried is in "
        "[0021](decisions/0021-short-arithmetic-of-16-bit-kernels.md). Triton's rows are its "
        "own kernels, which stand where there is no cubin of ours."
    ),
    "scaled_mm": (
        "Rows without the store are Triton's kernel, which takes sums out of the tensor cores "
        "as [0020](decisions/0020-bounds-of-fp8.md) asks; 24 tilings were timed for few and for "
        "many rows, scales a block ahead and tiles of 128 x 256 among them. With the store both "
        "sides run cuBLASLt's kernels, of the same choice "
        "([0026](decisions/0026-what-cublaslt-is-asked.md)), and a ratio near one is the noise of "
        "the run: products of 2,048 rows draw so much power that clocks fall, so what is timed "
        "later is slower. In turns, torch's and the library's own took as long, within 5 in 100. "
        "[Who multiplies](quantisation.md#who-multiplies) says what is in the store."
    ),
}


def why(name: str, text: str) -> str:
    """What to say below a section; empty where all of its limits are kept.

    Args:
        name: of the section's JSON file, without `gpu-`.
        text: the section.
    """
    missed = "**missed**" in text or "**above**" in text
    found = WHY.get(name.split("-")[0], "")
    return f"Where a limit is missed: {found}\n" if missed and found else ""
