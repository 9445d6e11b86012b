#!/usr/bin/env bash
# Exit code 0 while /health/ready answers 200: the model is loaded and the device works. Needs no other program.
set -euo pipefail
exec 3<>"/dev/tcp/127.0.0.1/${DANQING_PORT:-7860}"
printf 'GET /health/ready HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3
read -r -t 4 _ status _ <&3
[ "$status" = 200 ]
