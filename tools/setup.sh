#!/usr/bin/env bash
# Installs what the build needs and is not there yet: Debian packages (tools/packages/debian.txt) and what only PyPI has
# (tools/packages/pypi.txt, unpacked into .deps). Needs the network only for what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

list() { grep -vE '^\s*(#|$)' "$1"; }

missing=()
while read -r package; do
  # "install ok installed" also for packages that another one provides (libjpeg-dev, say).
  dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done < <(list tools/packages/debian.txt)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -eq 0 ]; then
    echo "setup: installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "setup: these packages are missing. Run this line, then the same make command again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi

# ggml: nothing to do when one is installed in the system or built by tools/build_ggml.sh. Backends of cards: tools/build_backend.sh.
requirement=$(list tools/packages/pypi.txt | grep '^libggml-python==')
stamp=.deps/ggml/requirement
if [ ! -e .deps/ggml-source ] && [ "$(cat "$stamp" 2>/dev/null)" != "$requirement" ]; then
  echo "setup: unpacking $requirement"
  rm -rf .deps/ggml .deps/wheels
  mkdir -p .deps/wheels
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: -d .deps/wheels "$requirement"
  python3 -m zipfile -e .deps/wheels/libggml_python-*.whl .deps/ggml
  rm -rf .deps/wheels
  echo "$requirement" > "$stamp"
fi
