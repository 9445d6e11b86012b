#!/usr/bin/env bash
# What `make test-vulkan` needs: ggml's Vulkan backend as a module (tools/build_backend.sh, 9 minutes on two cores, kept by
# version) and a software Vulkan driver, Mesa's lavapipe. Mesa before 24 reads descriptors of freed buffers and crashes; where the
# distribution's is older (Debian 12: 22.3), that of its backports is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

mesa() { dpkg-query -W -f '${Version}' mesa-vulkan-drivers 2>/dev/null | grep -oE '^[0-9]+' || echo 0; }
missing=()
for package in glslc libvulkan1 libvulkan-dev; do
  dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ "$(mesa)" -ge 24 ] || missing+=(mesa-vulkan-drivers)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ]; then
    echo "setup_vulkan: as root: apt-get install ${missing[*]} (mesa-vulkan-drivers 24 or newer)" >&2
    exit 1
  fi
  echo "setup_vulkan: installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  if [ "$(mesa)" -lt 24 ]; then
    . /etc/os-release
    list=/etc/apt/sources.list.d/danqing-backports.list
    mirror=$(tools/debian_mirror.sh)
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $VERSION_CODENAME-backports main" > "$list"
    trap 'rm -f "$list"; apt-get update -qq || true' EXIT
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -t "$VERSION_CODENAME-backports" mesa-vulkan-drivers >/dev/null
  fi
fi
tools/build_backend.sh vulkan
touch .deps/backends/vulkan.tested
