#!/usr/bin/env bash
# The build stage of deploy/Containerfile, run as root in the checkout: installs what the build needs, builds, and lays
# under DESTINATION what the image gets, the names of the packages that it needs included.
#   deploy/container/build.sh cpu|vulkan|rocm|cuda DESTINATION
# GPU_TARGETS: AMD targets (rocm). CUDA_ARCHITECTURES: NVIDIA's (cuda).
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${1:-} destination=${2:-}
[ -n "$destination" ] || { echo "usage: build.sh cpu|vulkan|rocm|cuda DESTINATION" >&2; exit 2; }
export DEBIAN_FRONTEND=noninteractive

# Only what the target's ggml needs beyond tools/packages; `always` are packages that the program loads by name.
case $target in
  cpu) backend='' needs=() always=(ca-certificates) ;;
  vulkan) backend=vulkan needs=(libvulkan-dev glslc spirv-headers) always=(ca-certificates mesa-vulkan-drivers) ;;
  rocm) backend=hip needs=(hip-dev hipblas-dev rocblas-dev) always=(ca-certificates) ;;
  cuda) backend=cuda needs=() always=(ca-certificates) ;;
  *) echo "build.sh: expected cpu, vulkan, rocm or cuda, got '$target'" >&2; exit 2 ;;
esac
apt-get update -qq
apt-get install -y -qq --no-install-recommends make "${needs[@]}" >/dev/null
make setup

# The backend is a module beside the program (tools/build_backend.sh).
export PATH=$PATH:/opt/rocm/bin
case $target in
  rocm) export DANQING_GFX_TARGETS=${GPU_TARGETS:?} ;;
  cuda) export DANQING_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES:-} ;;
esac
make build BACKENDS="$backend"
DESTDIR=$destination cmake --install build/release --prefix /usr --strip

# An image runs the program; who builds against the library takes the source.
rm -rf "$destination"/usr/include "$destination"/usr/lib/systemd "$destination"/usr/lib/sysusers.d
find "$destination/usr/lib" -type d -name cmake -prune -exec rm -rf {} +
find "$destination" -name '*.a' -delete
share=$destination/usr/share/danqing/container
mkdir -p "$share"
install -m 755 deploy/container/runtime.sh deploy/container/healthcheck.sh "$share"
deploy/container/packages.sh "$destination" "${always[@]}" > "$share/packages.txt"
echo "build.sh: $(du -sh "$destination" | cut -f1) and $(wc -l < "$share/packages.txt") packages"
