#!/usr/bin/env bash
# Makes .deps/test-venv with what only some of the tests use (tools/packages/pypi-test.txt), unpacks Debian's prometheus into
# .deps (nothing is started, no root needed), and as root installs Debian's chromium, in which the page is tried, and
# nats-server, on which the queue of many machines is tried. Never fails: without the network, or with DANQING_NO_TEST_VENV
# set, those tests are skipped and say so.
set -uo pipefail
cd "$(dirname "$0")/.."
[ -n "${DANQING_NO_TEST_VENV:-}" ] && exit 0
if [ "$(id -u)" -eq 0 ] && ! command -v chromium >/dev/null && command -v apt-get >/dev/null; then
  echo "setup: installing chromium for the page's tests"
  DEBIAN_FRONTEND=noninteractive timeout 240 apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 ||
    echo "setup: chromium cannot be installed here; the page's tests will be skipped"
fi
if ! command -v promtool >/dev/null && [ ! -x .deps/prometheus/usr/bin/promtool ] && command -v apt-get >/dev/null; then
  echo "setup: unpacking Debian's prometheus for the tests of deploy/"
  work=$(mktemp -d)
  if (cd "$work" && timeout 240 apt-get download -qq prometheus >/dev/null 2>&1) && mkdir -p .deps &&
     dpkg-deb -x "$work"/prometheus_*.deb .deps/prometheus; then :; else
    rm -rf .deps/prometheus
    echo "setup: prometheus cannot be fetched here; the tests that use it will be skipped"
  fi
  rm -rf "$work"
fi
if [ "$(id -u)" -eq 0 ] && ! command -v nats-server >/dev/null && command -v apt-get >/dev/null; then
  echo "setup: installing nats-server for the queue's tests"
  DEBIAN_FRONTEND=noninteractive timeout 240 apt-get install -y -qq --no-install-recommends nats-server >/dev/null 2>&1 ||
    echo "setup: nats-server cannot be installed here; the tests of the shared queue will be skipped"
fi
list=$(grep -vE '^\s*(#|$)' tools/packages/pypi-test.txt)
stamp=.deps/test-venv/requirements
[ "$(cat "$stamp" 2>/dev/null)" = "$list" ] && exit 0
echo "setup: test tools (openai, schemathesis, playwright, schemas) into .deps/test-venv"
rm -rf .deps/test-venv
if python3 -m venv .deps/test-venv >/dev/null 2>&1 &&
   timeout 240 .deps/test-venv/bin/pip install --quiet --disable-pip-version-check $list; then
  echo "$list" > "$stamp"
else
  rm -rf .deps/test-venv
  echo "setup: the test tools cannot be installed here; the tests that use them will be skipped"
fi
exit 0
