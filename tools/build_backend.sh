#!/usr/bin/env bash
# Builds one of ggml's backends for cards as a module, .deps/backends/libggml-NAME.so, from the source archive of the same PyPI
# package that tools/setup.sh takes ggml itself from. Does nothing when it is there and of the asked version.
#   tools/build_backend.sh vulkan|hip|cuda [CMAKE_OPTION=VALUE...]
# vulkan  needs glslc and a Vulkan loader (Debian: glslc libvulkan-dev); where the system's Vulkan headers are too old for ggml,
#         those of the next Debian are unpacked into .deps/vulkan-headers, beside the system and not into it
# hip     needs ROCm; cards in $DANQING_GFX_TARGETS (default below; the list is open, newer cards are added by name)
# cuda    needs the CUDA toolkit; architectures in $DANQING_CUDA_ARCHITECTURES (default: ggml's own choice)
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:-}
case "$name" in vulkan|hip|cuda) shift ;; *) sed -n 2,9p "$0" | sed 's/^# \?//' >&2; exit 2 ;; esac

requirement=$(grep '^libggml-python==' tools/packages/pypi.txt)
targets=${DANQING_GFX_TARGETS:-gfx950;gfx942;gfx90a;gfx1201;gfx1200;gfx1100;gfx1151}
out=.deps/backends
stamp="$requirement $*"
case "$name" in
  hip) stamp="$stamp $targets" ;;
  cuda) stamp="$stamp ${DANQING_CUDA_ARCHITECTURES:-}" ;;
esac
if [ -f "$out/libggml-$name.so" ] && [ "$(cat "$out/$name.stamp" 2>/dev/null)" = "$stamp" ]; then exit 0; fi

need() { command -v "$1" >/dev/null || { echo "build_backend: $1 not found: $2" >&2; exit 1; }; }
need cmake "install cmake"
options=(-DGGML_BACKEND_DL=ON -DGGML_NATIVE=OFF -DGGML_CPU=OFF -DCMAKE_SKIP_RPATH=ON -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF)
for option in "$@"; do options+=("-D$option"); done

# ggml 0.20 asks for VK_EXT_layer_settings, which came with 1.3.272.
vulkan_headers() {
  local header=/usr/include/vulkan/vulkan_core.h version=0
  [ -f "$header" ] && version=$(sed -n 's/^#define VK_HEADER_VERSION \([0-9]*\)$/\1/p' "$header")
  local complete=$(grep -c 'define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, 4' "$header" 2>/dev/null || true)
  if { [ "$version" -ge 272 ] || [ "${complete:-0}" -gt 0 ]; } && [ -d /usr/share/cmake/SPIRV-Headers ]; then return; fi
  local to=$PWD/.deps/vulkan-headers
  if [ ! -d "$to/usr/include/vulkan" ]; then
    need apt-get "unpack Vulkan headers >= 1.3.272 and SPIRV-Headers into $to"
    local apt=$PWD/.deps/vulkan-apt
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$to"
    local mirror
    mirror=$(tools/debian_mirror.sh)
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$apt/trixie.list"
    local o=(-qq -o Dir::Etc::sourcelist="$apt/trixie.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$apt/lists"
             -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root)
    apt-get "${o[@]}" update
    (cd "$apt" && apt-get "${o[@]}" download libvulkan-dev spirv-headers)
    for deb in "$apt"/*.deb; do dpkg-deb -x "$deb" "$to"; done
    rm -rf "$apt"
  fi
  options+=(-DVulkan_INCLUDE_DIR="$to/usr/include" -DSPIRV-Headers_DIR="$to/usr/share/cmake/SPIRV-Headers"
            -DCMAKE_CXX_FLAGS="-I$to/usr/include")
}

case "$name" in
  vulkan)
    need glslc "install glslc"
    vulkan_headers
    options+=(-DGGML_VULKAN=ON) ;;
  hip)
    need hipcc "install ROCm (its hipcc on PATH)"
    options+=(-DGGML_HIP=ON "-DCMAKE_HIP_ARCHITECTURES=$targets" "-DCMAKE_PREFIX_PATH=${ROCM_PATH:-/opt/rocm}") ;;
  cuda)
    need nvcc "install the CUDA toolkit (its nvcc on PATH)"
    options+=(-DGGML_CUDA=ON)
    [ -z "${DANQING_CUDA_ARCHITECTURES:-}" ] || options+=("-DCMAKE_CUDA_ARCHITECTURES=$DANQING_CUDA_ARCHITECTURES") ;;
esac
if command -v ccache >/dev/null; then
  options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: -d "$work" "$requirement"
tar -C "$work" -xzf "$work"/libggml_python-*.tar.gz
source=$(echo "$work"/libggml_python-*/ggml)
cmake -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON "${options[@]}" > "$work/configure.log" 2>&1 ||
  { tail -20 "$work/configure.log" >&2; exit 1; }
echo "build_backend: building ggml's $name backend (minutes)"
cmake --build "$work/build" --target "ggml-$name" -j "${JOBS:-$(nproc)}" > "$work/build.log" 2>&1 || { tail -30 "$work/build.log" >&2; exit 1; }
mkdir -p "$out"
cp "$(find "$work/build" -name "libggml-$name.so" | head -1)" "$out/libggml-$name.so.new"
strip --strip-unneeded "$out/libggml-$name.so.new"
mv "$out/libggml-$name.so.new" "$out/libggml-$name.so"
echo "$stamp" > "$out/$name.stamp"
echo "built: $out/libggml-$name.so"
