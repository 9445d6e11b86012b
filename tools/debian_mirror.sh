#!/usr/bin/env bash
# Prints the Debian mirror that this machine's apt uses, for packages of another release.
grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -1 | tr -d ' ' | grep . ||
  echo http://deb.debian.org/debian
