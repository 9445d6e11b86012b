#!/usr/bin/env bash
# Builds ggml itself for this machine's processor from the source archive of the PyPI package libggml-python, into
# .deps/ggml-source, where the next configure finds it before the prebuilt one. Only plain ggml (--cpu-kernels ggml) gains by it;
# backends for cards are modules: tools/build_backend.sh.
#   tools/build_ggml.sh [CMAKE_OPTION=VALUE...]
set -euo pipefail
cd "$(dirname "$0")/.."
requirement=$(grep '^libggml-python==' tools/packages/pypi.txt)
settings=(-C cmake.define.GGML_NATIVE=ON)
for option in "$@"; do settings+=(-C "cmake.define.$option"); done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip wheel --disable-pip-version-check --no-deps --no-binary libggml-python -w "$work" "$requirement" "${settings[@]}"
rm -rf .deps/ggml-source
python3 -m zipfile -e "$work"/libggml_python-*.whl .deps/ggml-source
echo "built: .deps/ggml-source; configure again (make build)"
