#!/usr/bin/env bash
# Style and likely mistakes: clang-format, clang-tidy, include direction, the scripts' syntax.
#   tools/lint.sh                   the whole tree
#   tools/lint.sh --changed [REF]   only what differs from REF (default HEAD), new files too
#   tools/lint.sh --fix [...]       formats instead of complaining, then goes on
#   tools/lint.sh FILE...           these files
# Needs clang-format and clang-tidy (14 as on Debian 12, or newer) and a configured build: BUILD=DIR, else build/*.
set -uo pipefail
cd "$(dirname "$0")/.."

tool() {
  for name in "$1-14" "$1"; do
    if command -v "$name" >/dev/null; then
      echo "$name"
      return
    fi
  done
  echo "lint: $1 is missing: apt-get install $1-14" >&2
  exit 2
}
format=$(tool clang-format) || exit 2
tidy=$(tool clang-tidy) || exit 2

fix=
if [ "${1:-}" = --fix ]; then
  fix=1
  shift
fi
if [ "${1:-}" = --changed ]; then
  mapfile -t files < <({ git diff --name-only --diff-filter=d "${2:-HEAD}"; git ls-files --others --exclude-standard; } | sort -u)
elif [ $# -gt 0 ]; then
  files=("$@")
else
  mapfile -t files < <(git ls-files --cached --others --exclude-standard)
fi
pick() { printf '%s\n' ${files[@]+"${files[@]}"} | grep -E "$1" | while read -r f; do [ -f "$f" ] && echo "$f"; done; }
mapfile -t code < <(pick '^(apps|cmake|examples|include|src|tests)/.*\.(h|cpp)$')
mapfile -t units < <(pick '^(apps|src|tests)/.*\.cpp$')

failed=0
if [ ${#code[@]} -gt 0 ]; then
  if [ -n "$fix" ]; then
    "$format" -i "${code[@]}"
  else
    unformatted=$(for f in "${code[@]}"; do "$format" "$f" | cmp -s - "$f" || echo "$f"; done)
    if [ -n "$unformatted" ]; then
      echo "lint: not formatted (tools/lint.sh --fix does it):"
      echo "$unformatted"
      failed=1
    fi
  fi
fi

build=${BUILD:-$(ls -td build/*/compile_commands.json 2>/dev/null | head -1 | xargs -r dirname)}
if [ -z "$build" ] && [ ${#units[@]} -gt 0 ]; then
  build=build/dev
  cmake --preset dev >/dev/null || exit 2
fi
if [ ${#units[@]} -gt 0 ]; then
  # GCC's own warning flags in the build's commands mean nothing to clang.
  printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -n 1 "$tidy" -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option \
    2> >(grep -v 'warnings generated\|Suppressed\|Use -header-filter\|^$' >&2) || failed=1
fi

python3 -B tests/lint/includes.py . || failed=1
while read -r script; do bash -n "$script" || failed=1; done < <(pick '\.sh$|^\.ci/run$')
while read -r script; do
  python3 -c 'import ast, sys; ast.parse(open(sys.argv[1], encoding="utf-8").read(), sys.argv[1])' "$script" || failed=1
done < <(pick '\.py$')
[ $failed -eq 0 ] && echo "lint: clean"
exit $failed
