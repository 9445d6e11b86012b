"""Include direction: a layer may include only the layers below it; ggml stays in nn/ and device/, JSON out of the public API.

    includes.py SOURCE_ROOT     prints each violation, exit 1 if there is one
"""
import pathlib
import re
import sys

# Lowest first: a folder may include itself and the folders in its set.
BELOW = {
    "base": set(),
    "checkpoint": {"base"},
    "fetch": {"base"},
    "text": {"base"},
    "sampling": {"base"},
    "image": {"base", "sampling"},
    "device": {"base", "checkpoint"},
    "monitor": {"base", "checkpoint", "device"},
    "nn": {"base", "checkpoint", "device"},
    "models": {"base", "checkpoint", "device", "nn"},
    "memory": {"base", "checkpoint", "device", "nn", "models"},
    "tune": {"base", "checkpoint", "device", "nn"},
    "pipeline": {"base", "checkpoint", "device", "nn", "models", "memory", "tune", "text", "image", "sampling"},
}
GGML = re.compile(r"^(ggml|gguf)[\w-]*\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def violations(root):
    for path in sorted([*root.glob("src/**/*"), *root.glob("include/**/*"), *root.glob("apps/**/*")]):
        if path.suffix not in (".h", ".cpp"):
            continue
        parts = path.relative_to(root).parts
        layer = parts[1] if parts[0] == "src" else parts[0]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1)
            where = f"{path.relative_to(root)}:{number}: includes {target}"
            if GGML.match(target) and layer not in ("nn", "device"):
                yield where + " (ggml belongs to nn/ and device/)"
            if target.startswith(("dnnl", "oneapi/dnnl")) and parts[:3] != ("src", "device", "kernels"):
                yield where + " (oneDNN belongs to device/kernels/)"
            if parts[0] == "include" and not target.startswith("danqing/") and ("/" in target or target.endswith(".h")):
                yield where + " (the public API includes the standard library and itself only)"
            first = target.split("/")[0]
            if parts[0] == "src" and "/" in target and first in BELOW and first != layer and first not in BELOW[layer]:
                yield where + f" ({layer}/ is not above {first}/)"


def main():
    found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "includes point down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
