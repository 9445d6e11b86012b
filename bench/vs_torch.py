#!/usr/bin/env python3
"""Danqing against diffusers/transformers on the same shapes, in one run; each measurement a process of its own, in turn.

    bench/vs_torch.py                               everything: needs 12 GB of memory and, on two cores, half an hour
    bench/vs_torch.py --case denoiser-512-64 --rounds 1 --column torch-f32 --column danqing
    bench/vs_torch.py --prefix "chrt -f 50"         on a machine with other work
    bench/vs_torch.py --markdown table.md --json raw.json

torch is installed into build/torch-venv (bench/requirements.txt) unless --venv names an environment that has it. Of each
measurement's rounds the best median counts. Of torch the better of f32 and bf16 is compared. Never run by the tests.
"""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT = "a red apple on green grass under a blue sky"
NETWORK = ["torch-f32", "torch-bf16", "danqing", "ggml", "i8", "q8_0", "q4_K"]
COLUMNS = {"danqing": [], "ggml": ["--cpu-kernels", "ggml"], "i8": ["--cpu-precision", "i8"],
           "q8_0": ["--weights", "q8_0"], "q4_K": ["--weights", "q4_K"]}


class Case:
    def __init__(self, name, title, columns, torch, danqing, row, reps=3):
        self.name, self.title, self.columns, self.reps = name, title, columns, reps
        self.torch, self.danqing, self.row = torch, danqing, row  # arguments of both sides; (stage, start of "what")


def cases(mini, checkpoint):
    made_up = ["--config", "ernie-8b"]
    all_cases = []
    for size in (512, 1024):
        for tokens in (64, 512):
            all_cases.append(Case(
                f"denoiser-{size}-{tokens}", f"denoiser step {size}x{size}, {tokens} text tokens, 2 layers", NETWORK,
                ["denoiser", "--size", size, "--tokens", tokens],
                [*made_up, "--layers", 2, "--stage", "denoiser", "--size", f"{size}x{size}", "--text-tokens", tokens],
                ("denoiser", "one pass"), reps=3 if size == 512 else 2))
    # Danqing leaves out the last layer, whose result nobody uses: it is given three, torch two.
    all_cases.append(Case("text", "text encoder, 256 tokens, 2 layers", NETWORK, ["text", "--tokens", 256],
                          [*made_up, "--layers", 3, "--stage", "text", "--encoder-tokens", 256], ("text", "256 tokens"), reps=5))
    all_cases.append(Case("enhancer", "enhancer, one new token (one stream, 2 layers and head)", NETWORK,
                          ["enhancer", "--tokens", 64, "--new-tokens", 32],
                          [*made_up, "--layers", 2, "--stage", "enhancer", "--enhancer-prompt", 64, "--new-tokens", 32],
                          ("enhancer", "32 new tokens")))
    for size in (512, 1024):
        all_cases.append(Case(f"vae-{size}", f"VAE decode {size}x{size}", ["torch-f32", "torch-bf16", "danqing", "ggml"],
                              ["vae", "--size", size], [*made_up, "--stage", "vae", "--size", f"{size}x{size}"],
                              ("vae", "decode"), reps=2))
    all_cases.append(Case("mini", "mini, process start to PNG, 128x128, 20 guided steps",
                          ["torch-f32", "torch-bf16", "danqing", "ggml"], ["mini", "--model", mini], ["-m", mini, "--stage", "pipeline"],
                          ("pipeline", "picture, loaded")))
    all_cases.append(Case("load", "load of 1.1 GB bf16, every byte read once", ["torch-bf16", "danqing"],
                          ["load", "--model", checkpoint],
                          ["--transformer", checkpoint, "--stage", "load", "--dtype", "bf16"],
                          ("load", "transformer and every byte")))
    return all_cases


class Runner:
    def __init__(self, a):
        self.a = a
        self.prefix = shlex.split(a.prefix)
        self.python = ensure_venv(pathlib.Path(a.venv))

    def process(self, command):
        """Output, seconds from start to end, peak memory of the process."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            start = time.time()
            p = subprocess.Popen([*self.prefix, *map(str, command)], stdout=out, stderr=err, cwd=ROOT,
                                 env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.time() - start
            out.seek(0), err.seek(0)
            if p.returncode != 0:
                sys.exit(f"{shlex.join(map(str, command))}: exit {p.returncode}\n{err.read().decode()[-3000:]}")
            return out.read().decode(), {"start": start, "process_seconds": seconds, "peak_rss": usage.ru_maxrss * 1024}

    def torch(self, case, dtype, count):
        out, process = self.process([self.python, ROOT / "bench/torch_side.py", *case.torch, "--dtype", dtype, "--threads",
                                     self.a.threads, "--reps", case.reps, "--out", self.a.work / "torch.png",
                                     *(["--count"] if count else [])])
        result = json.loads(out.splitlines()[-1])
        if "first_picture_at" in result:
            result["cold"] = result.pop("first_picture_at") - process["start"]
        if "tokens_per_second" in result:
            result["seconds"] = 1 / result["tokens_per_second"]
        return {**process, **result}

    def danqing(self, case, column):
        options = [*COLUMNS[column], "--threads", self.a.threads]
        out, process = self.process([self.a.danqing, "bench", *case.danqing, "--repeat", case.reps, "--json", *options])
        report = json.loads(out)
        rows = [r for r in report["results"] if r["stage"] == case.row[0] and r["what"].startswith(case.row[1])]
        result = {**process, **rows[0], "kernels": report["kernels"]}
        if "tokens_per_second" in result and case.name == "enhancer":
            result["seconds"] = 1 / result["tokens_per_second"]
            result["gflop"] /= 32
        if case.name == "load":
            result["memcpy"] = next(r["bytes_per_second"] for r in report["results"] if r["what"].startswith("memcpy"))
        if case.name == "mini":
            _, whole = self.process([self.a.danqing, "generate", PROMPT, *case.danqing[:2], "--size", "128x128", "--steps", 20,
                                     "--guidance", 4, "--seed", 42, "--prompt-enhancer", "off", "--overwrite",
                                     "-o", self.a.work / "danqing.png", *options])
            result["cold"], result["peak_rss"] = whole["process_seconds"], whole["peak_rss"]
        return result


def ensure_venv(path):
    python = path / "bin" / "python"
    if not python.exists():
        print(f"installing torch and diffusers into {path}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", path], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", ROOT / "bench/requirements.txt"], check=True)
    return python


def better(old, new):
    """Of two rounds the faster; peaks of memory are the larger."""
    if old is None:
        return new
    best = dict(new if new["seconds"] < old["seconds"] else old)
    if "cold" in new:
        best["cold"] = min(old["cold"], new["cold"])
    for key in ("gflop", "memcpy"):
        if key in old or key in new:
            best[key] = max(old.get(key, 0), new.get(key, 0))
    best["peak_rss"] = max(old["peak_rss"], new["peak_rss"])
    return best


def check_work(case, columns):
    """Both sides must do the same number of operations; torch counts its own."""
    ours, theirs = columns.get("danqing", {}).get("gflop"), columns.get("torch-f32", {}).get("gflop")
    if not ours or not theirs:
        return
    same = abs(ours - theirs) <= 0.03 * theirs
    print(f"  work: torch counts {theirs:.1f} GFLOP, danqing {ours:.1f}{'' if same else '   NOT THE SAME WORK'}", file=sys.stderr)


def peak_of(peaks, what, kind, field="operations_per_second"):
    return max((p.get(field, 0) for p in peaks["peaks"] if p["what"].startswith(what) and p["type"] == kind), default=0)


def share(case, r, peaks):
    """What the measured speed is of the machine's own, in words."""
    if case.name == "enhancer":
        top = peak_of(peaks, "memory read", "read", "bytes_per_second")
        return f"{100 * r['weight_bytes'] / r['seconds'] / top:.0f} % of memory reads" if top else ""
    if case.name == "load":
        return f"{100 * r['bytes_per_second'] / r['memcpy']:.0f} % of memcpy"
    if not r.get("gflop"):
        return ""
    kind = "f32" if case.name.startswith("vae") else r["kernels"].rsplit(" ", 1)[-1]
    speed = 1e9 * r["gflop"] / r["seconds"]
    parts = [f"{100 * speed / top:.0f} % of {name}" for name, top in
             (("oneDNN", peak_of(peaks, "oneDNN", kind)), ("registers", peak_of(peaks, "registers", kind))) if top]
    return f"{speed * 1e-9:.0f} GFLOP/s {kind}: " + ", ".join(parts)


def seconds(x):
    return "-" if x is None else f"{x:.2f} s" if x >= 1 else f"{x * 1e3:.1f} ms" if x >= 0.01 else f"{x * 1e3:.2f} ms"


def ratio(ours, theirs):
    return "-" if not ours or not theirs else f"{theirs / ours:.2f}x"


def table(all_cases, results, peaks):
    head = ["work", "torch", "danqing", "to torch", "plain ggml", "to ggml", "i8", "to torch", "q8_0", "to torch", "q4_K",
            "to torch", "share of peak", "memory torch", "memory danqing"]
    lines = []
    for case in all_cases:
        columns = results.get(case.name, {})
        for key, suffix in (("cold", ""), ("seconds", ", warm")) if case.name == "mini" else (("seconds", ""),):
            torch = {c: columns[c] for c in ("torch-f32", "torch-bf16") if c in columns}
            name = min(torch, key=lambda c: torch[c][key]) if torch else None
            get = lambda c: columns.get(c, {}).get(key)
            base = torch[name][key] if name else None
            row = [case.title + suffix if not suffix else "mini, warm", f"{seconds(base)} {name[6:]}" if name else "-",
                   seconds(get("danqing")), ratio(get("danqing"), base), seconds(get("ggml")), ratio(get("danqing"), get("ggml"))]
            for c in ("i8", "q8_0", "q4_K"):
                row += [seconds(get(c)), ratio(get(c), base)]
            ours = columns.get("danqing")
            row += [share(case, ours, peaks) if ours and peaks and key == "seconds" else ""]
            memory = lambda c: f"{columns[c]['peak_rss'] / 2**30:.2f} GiB" if c in columns else "-"
            lines.append(row + [memory(name) if name else "-", memory("danqing")])
    return head, lines


def markdown(head, lines):
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *lines])


def plain(head, lines):
    widths = [max(len(row[i]) for row in [head, *lines]) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in [head, *lines])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--danqing", type=pathlib.Path, default=ROOT / "build/release/bin/danqing")
    p.add_argument("--venv", default=ROOT / "build/torch-venv", help="environment with torch; made where it is missing")
    p.add_argument("--mini", type=pathlib.Path, default=ROOT / "models/danqing-mini")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of both sides")
    p.add_argument("--prefix", default="", help='put before each command, e.g. "chrt -f 50"')
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--case", action="append", help="only these (repeatable)")
    p.add_argument("--column", action="append", choices=NETWORK, help="only these (repeatable)")
    p.add_argument("--list", action="store_true", help="list the cases")
    p.add_argument("--markdown", type=pathlib.Path)
    p.add_argument("--json", type=pathlib.Path)
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="danqing-bench-") as work:
        a.work = pathlib.Path(work)
        all_cases = cases(a.mini.resolve(), a.work / "checkpoint")
        if a.list:
            return print("\n".join(f"{c.name:20} {c.title}" for c in all_cases))
        if unknown := set(a.case or []) - {c.name for c in all_cases}:
            sys.exit(f"[--case] expected {', '.join(c.name for c in all_cases)}, got {', '.join(unknown)}")
        all_cases = [c for c in all_cases if not a.case or c.name in a.case]
        runner = Runner(a)
        peak = a.danqing.parent / "danqing_peak"
        peaks = json.loads(runner.process([peak, "--threads", a.threads, "--json"])[0]) if peak.exists() else None
        if any(c.name == "load" for c in all_cases):
            runner.process([runner.python, ROOT / "bench/torch_side.py", "save", "--dtype", "bf16", "--threads", a.threads,
                            "--model", a.work / "checkpoint"])
        results = {}
        for case in all_cases:
            columns = results.setdefault(case.name, {})
            print(case.title, file=sys.stderr)
            for round_number in range(a.rounds):
                for c in (c for c in case.columns if not a.column or c in a.column):
                    new = (runner.torch(case, c[6:], round_number == 0 and c == "torch-f32" and case.name not in ("mini", "load"))
                           if c.startswith("torch") else runner.danqing(case, c))
                    columns[c] = better(columns.get(c), new)
                    print(f"  round {round_number + 1} {c:10} {seconds(new['seconds'])}", file=sys.stderr)
            check_work(case, columns)
            report(a, all_cases, results, peaks)  # what is there, if the rest is stopped
    print("\n" + report(a, all_cases, results, peaks))


def report(a, all_cases, results, peaks):
    head, lines = table([c for c in all_cases if c.name in results], results, peaks)
    title = f"{peaks['processor']}, {a.threads} threads, oneDNN {peaks['onednn']}" if peaks else f"{a.threads} threads"
    if a.markdown:
        a.markdown.write_text(f"{title}\n\n{markdown(head, lines)}\n", encoding="utf-8")
    if a.json:
        a.json.write_text(json.dumps({"peaks": peaks, "results": results}, indent=1) + "\n", encoding="utf-8")
    return f"{title}\n\n{plain(head, lines)}"


if __name__ == "__main__":
    main()
