#!/usr/bin/env bash
# Draws the demonstration pictures: tools/demo.sh DANQING OUTPUT_DIRECTORY
set -euo pipefail
danqing=$1 out=$2
rm -rf "$out"
mkdir -p "$out"
draw() {  # name, then the arguments of generate
  local name=$1
  shift
  "$danqing" generate "$@" -o "$out/$name.png" --json --quiet > "$out/$name.json"
  python3 - "$out/$name.json" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
i, s = r["images"][0], r["seconds"]
print(f'{i["path"]}\n  prompt:  {i["prompt"]}')
if "revised_prompt" in i:
    print(f'  revised: {i["revised_prompt"]}')
print(f'  {i["width"]}x{i["height"]}, {r["num_inference_steps"]} steps, {s["per_step"]:.3f} s per step, {s["total"]:.2f} s in all')
PY
  rm "$out/$name.json"
}
draw apple "a red apple on green grass under a blue sky" --seed 42 --prompt-enhancer off
draw cat "夜空下的一只猫" --seed 42 --prompt-enhancer off
draw enhanced "a sailboat" --seed 7 --prompt-enhancer on
echo "pictures are in $out/"
