#!/usr/bin/env bash
# The run stage of deploy/Containerfile, as root: the packages that the program needs, the user that it runs as and the
# two directories that are mounted over. Nothing else of the image is written to afterwards.
set -euo pipefail
here=$(dirname "$0")
uid=10001
mapfile -t packages < "$here/packages.txt"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
apt-get clean
rm -rf /var/lib/apt/lists/*
groupadd --gid "$uid" danqing
useradd --uid "$uid" --gid "$uid" --home-dir /var/lib/danqing --no-create-home --shell /usr/sbin/nologin danqing
install -d -o "$uid" -g "$uid" -m 750 /var/lib/danqing
install -d -m 755 /models
/usr/bin/danqing --version
