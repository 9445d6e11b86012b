#!/usr/bin/env bash
# Builds ggml with GPU backends from the source archive of the PyPI package libggml-python, into .deps/ggml-source, where the
# next configure finds it before the prebuilt one.
#   tools/build_ggml.sh vulkan|hip|cuda|native [CMAKE_OPTION=VALUE...]
set -euo pipefail
cd "$(dirname "$0")/.."
requirement=$(grep '^libggml-python==' tools/packages/pypi.txt)
case "${1:-}" in
  vulkan) options=(GGML_VULKAN=ON) ;;
  hip) options=(GGML_HIP=ON) ;;
  cuda) options=(GGML_CUDA=ON) ;;
  native) options=(GGML_NATIVE=ON) ;;
  *) echo "usage: tools/build_ggml.sh vulkan|hip|cuda|native [CMAKE_OPTION=VALUE...]" >&2; exit 2 ;;
esac
shift
settings=()
for option in "${options[@]}" "$@"; do settings+=(-C "cmake.define.$option"); done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip wheel --disable-pip-version-check --no-deps --no-binary libggml-python -w "$work" "$requirement" "${settings[@]}"
rm -rf .deps/ggml-source
python3 -m zipfile -e "$work"/libggml_python-*.whl .deps/ggml-source
echo "built: .deps/ggml-source; configure again (make build)"
