#!/usr/bin/env bash
# The packages that own the libraries which the programs below DESTINATION load, one a line, and those named.
#   deploy/container/packages.sh DESTINATION [PACKAGE...]
set -euo pipefail
destination=${1:?usage: packages.sh DESTINATION [PACKAGE...]}
shift
libraries() {
  find "$destination" -type f \( -perm -u+x -o -name '*.so*' \) -exec ldd {} \; 2>/dev/null |
    awk '/=> \// {print $3}' | grep -v "^$destination" | sort -u
}
# A library lies in /lib for the loader and in /usr/lib for dpkg, or the other way round: all are asked for, in one go, and
# those that dpkg does not know are no error.
mapfile -t paths < <(libraries | while read -r library; do
  printf '%s\n' "$library" "$(realpath "$library")" "/usr$library" "${library#/usr}"
done)
{
  for name in "$@"; do echo "$name"; done
  if [ ${#paths[@]} -gt 0 ]; then
    { dpkg-query -S "${paths[@]}" 2>/dev/null || true; } | sed -n 's/^\([^:, ]*\).*/\1/p'
  fi
} | sort -u
