#!/usr/bin/env python3
"""Does the memory plan hold at the real models' sizes? Draws one step with sparse files of true shape (all zeros; the picture
means nothing) under several budgets and sets the plan against the device's count and the process' resident memory.

usage: true_size_memory.py [--danqing PROGRAM] [--model ernie-image|z-image] [--size 256x256] [--budgets 20GiB,6GiB] [--dir DIR]

Needs about 16 GiB of free memory for the page cache at 20GiB, less at smaller budgets. Prints Markdown.
"""
import argparse
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GIB = 2 ** 30


def run(program, model, budget, size):
    """(plan and peaks, seconds, peak resident bytes) of one picture in a process of its own."""
    command = [program, "generate", "a lighthouse", "-m", model, "--size", size, "--steps", "1", "--guidance", "0", "--seed", "1",
               "--prompt-enhancer", "off", "--dtype", "bf16", "--device-memory", budget, "--json", "-q", "--overwrite",
               "-o", str(model / "picture.png")]
    begin = time.monotonic()
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak = {"VmHWM": 0, "RssAnon": 0}
    while p.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{p.pid}/status").read_text()
            for key in peak:
                peak[key] = max(peak[key], int(re.search(key + r":\s+(\d+)", status).group(1)) * 1024)
        except (OSError, AttributeError):
            pass
        time.sleep(0.05)
    seconds = time.monotonic() - begin
    out, err = p.stdout.read(), p.stderr.read()
    if p.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {p.returncode}\n{err}")
    whole = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return json.loads(out)["memory"], seconds, max(peak["VmHWM"], 0) or whole, peak["RssAnon"]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--danqing", default=str(ROOT / "build/release/bin/danqing"))
    a.add_argument("--model", choices=("ernie-image", "z-image"), default="ernie-image")
    a.add_argument("--size", default="256x256")
    a.add_argument("--budgets", default="20GiB,6GiB")
    a.add_argument("--dir", type=pathlib.Path)
    o = a.parse_args()
    with tempfile.TemporaryDirectory(prefix="danqing-true-size-", dir=o.dir) as d:
        model = pathlib.Path(d) / o.model
        mini = ROOT / "models/danqing-mini"
        subprocess.run([sys.executable, "-B", ROOT / "tools/make_sparse_checkpoint.py", o.model, model, "--tokenizer",
                        mini / "tokenizer", "--pe-tokenizer", mini / "pe_tokenizer"], check=True, stdout=subprocess.DEVNULL)
        print(f"{o.model}, {o.size}, one step, bf16\n")
        print("| budget | choice | planned peak | counted peak | resident (files and all) | of it not files | time |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for budget in o.budgets.split(","):
            m, seconds, rss, anonymous = run(o.danqing, model, budget, o.size)
            p = m["plan"]
            streamed = [f"{c['role']} {c['resident_layers']} of {c['layers']}" for c in p["components"] if c["placement"] == "stream"]
            choice = p["mode"] + (f" ({', '.join(streamed)})" if streamed else "")
            print(f"| {budget} | {choice} | {p['device_peak'] / GIB:.2f} GiB | {m['device_peak'] / GIB:.2f} GiB | {rss / GIB:.2f} GiB | "
                  f"{anonymous / GIB:.2f} GiB | {seconds:.0f} s |", flush=True)


if __name__ == "__main__":
    main()
