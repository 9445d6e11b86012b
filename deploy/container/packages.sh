#!/usr/bin/env bash
# The packages that own the libraries which the programs below DESTINATION load, one a line, and those named.
#   deploy/container/packages.sh DESTINATION [PACKAGE...]
set -euo pipefail
destination=${1:?usage: packages.sh DESTINATION [PACKAGE...]}
shift
{
  for name in "$@"; do echo "$name"; done
  find "$destination" -type f \( -perm -u+x -o -name '*.so*' \) -exec ldd {} \; 2>/dev/null |
    awk '/=> \// {print $3}' | grep -v "^$destination" | sort -u |
    while read -r library; do
      # A library lies in /lib for the loader and in /usr/lib for dpkg, or the other way round.
      for path in "$library" "$(realpath "$library")" "/usr$library" "${library#/usr}"; do
        owner=$(dpkg-query -S "$path" 2>/dev/null | head -n 1) || true
        if [ -n "$owner" ]; then echo "${owner%%:*}"; break; fi
      done
    done
} | sort -u
