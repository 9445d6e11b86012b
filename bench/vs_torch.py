#!/usr/bin/env python3
"""Danqing against diffusers/transformers on the same shapes, in one run; each measurement a process of its own, in turn.

    bench/vs_torch.py --all --markdown table.md     everything once; about 20 minutes and 12 GB of memory on two idle cores
    bench/vs_torch.py --all --markdown table.md     the same again: goes on behind the last measurement that is in table.json
    bench/vs_torch.py --case denoiser-512-64 --rounds 2 --column torch-bf16 --column danqing
    bench/vs_torch.py --isa avx2 --case text        as on a machine without AVX-512: both sides restricted
    bench/vs_torch.py --prefix "chrt -f 50"         on a machine with other work

torch is installed into build/torch-venv (bench/requirements.txt) unless --venv names an environment that has it. Of each
measurement's rounds the best median counts. Of torch the better of f32 and bf16 is compared. What fails or takes longer than
--limit is named in the table, and the rest goes on. Never run by the tests.
"""
import argparse
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT = "a red apple on green grass under a blue sky"
NETWORK = ["torch-f32", "torch-bf16", "danqing", "ggml", "i8", "q8_0", "q4_K"]
COLUMNS = {"danqing": [], "ggml": ["--cpu-kernels", "ggml"], "i8": ["--cpu-precision", "i8"],
           "q8_0": ["--weights", "q8_0"], "q4_K": ["--weights", "q4_K"]}
ISA = {"avx2": {"DANQING_CPU_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2",
                "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}}


class Failure(Exception):
    """In a few words, for the table."""


class Case:
    """reps: timed runs of the quick columns; slow: columns that run once, without a run to warm up."""

    def __init__(self, name, title, columns, torch, danqing, row, reps=3, slow=()):
        self.name, self.title, self.columns, self.reps, self.slow = name, title, columns, reps, slow
        self.torch, self.danqing, self.row = torch, danqing, row  # arguments of both sides; (stage, start of "what")

    def runs(self, column):
        return 1 if column in self.slow else self.reps


def cases(mini, checkpoint):
    made_up = ["--config", "ernie-8b"]
    all_cases = []
    for size in (512, 1024):
        for tokens in (64, 512):
            all_cases.append(Case(
                f"denoiser-{size}-{tokens}", f"denoiser step {size}x{size}, {tokens} text tokens, 2 layers", NETWORK,
                ["denoiser", "--size", size, "--tokens", tokens],
                [*made_up, "--layers", 2, "--stage", "denoiser", "--size", f"{size}x{size}", "--text-tokens", tokens],
                ("denoiser", "one pass"), reps=3 if size == 512 else 1,
                slow=("ggml",) if size == 512 else ("ggml", "torch-f32")))
    for size in (512, 1024):
        all_cases.append(Case(
            f"z-image-{size}", f"Z-Image denoiser step {size}x{size}, 64 text tokens, 2 layers and refiners", NETWORK,
            ["z_image", "--size", size, "--tokens", 64],
            ["--config", "z-image-6b", "--layers", 2, "--stage", "denoiser", "--size", f"{size}x{size}", "--text-tokens", 64],
            ("denoiser", "one pass"), reps=3 if size == 512 else 1,
            slow=("ggml",) if size == 512 else ("ggml", "torch-f32")))
    # Danqing leaves out the last layer, whose result nobody uses: it is given three, torch two.
    all_cases.append(Case("text", "text encoder, 256 tokens, 2 layers", NETWORK, ["text", "--tokens", 256],
                          [*made_up, "--layers", 3, "--stage", "text", "--encoder-tokens", 256], ("text", "256 tokens"), reps=5,
                          slow=("ggml",)))
    all_cases.append(Case("enhancer", "enhancer, one new token (one stream, 2 layers and head)", NETWORK,
                          ["enhancer", "--tokens", 64, "--new-tokens", 32],
                          [*made_up, "--layers", 2, "--stage", "enhancer", "--enhancer-prompt", 64, "--new-tokens", 32],
                          ("enhancer", "32 new tokens")))
    for size in (512, 1024):
        all_cases.append(Case(f"vae-{size}", f"VAE decode {size}x{size}", ["torch-f32", "torch-bf16", "danqing", "ggml"],
                              ["vae", "--size", size], [*made_up, "--stage", "vae", "--size", f"{size}x{size}"],
                              ("vae", "decode"), reps=2 if size == 512 else 1,
                              slow=("ggml",) if size == 512 else ("ggml", "torch-f32")))
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
        """Output, seconds from start to end, peak memory of the process. Failure when it fails or takes too long."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            start = time.time()
            p = subprocess.Popen([*self.prefix, *map(str, command)], stdout=out, stderr=err, cwd=ROOT, start_new_session=True,
                                 env={**os.environ, **ISA.get(self.a.isa, {}), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
            try:
                status, usage = self.wait(p, start + self.a.limit)
            except BaseException:
                os.killpg(p.pid, signal.SIGKILL)
                os.wait4(p.pid, 0)
                raise
            p.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.time() - start
            out.seek(0), err.seek(0)
            if p.returncode != 0:
                print(f"{shlex.join(map(str, command))}: exit {p.returncode}\n{err.read().decode()[-3000:]}", file=sys.stderr)
                raise Failure(f"exit {p.returncode}")
            return out.read().decode(), {"start": start, "process_seconds": seconds, "peak_rss": usage.ru_maxrss * 1024}

    def wait(self, p, until):
        while True:
            pid, status, usage = os.wait4(p.pid, os.WNOHANG)
            if pid:
                return status, usage
            if time.time() > until:
                raise Failure(f"more than {self.a.limit} s")
            time.sleep(0.002)

    def torch(self, case, column, count):
        out, process = self.process([self.python, ROOT / "bench/torch_side.py", *case.torch, "--dtype", column[6:], "--threads",
                                     self.a.threads, "--reps", case.runs(column), "--out", self.a.work / "torch.png",
                                     *(["--no-warm-up"] if column in case.slow else []), *(["--count"] if count else [])])
        result = json.loads(out.splitlines()[-1])
        if "first_picture_at" in result:
            result["cold"] = result.pop("first_picture_at") - process["start"]
        if "tokens_per_second" in result:
            result["seconds"] = 1 / result["tokens_per_second"]
        return {**process, **result}

    def danqing(self, case, column):
        options = [*COLUMNS[column], "--threads", self.a.threads]
        out, process = self.process([self.a.danqing, "bench", *case.danqing, "--repeat", case.runs(column), "--json", *options,
                                     *(["--no-warm-up"] if column in case.slow else [])])
        report = json.loads(out)
        rows = [r for r in report["results"] if r["stage"] == case.row[0] and r["what"].startswith(case.row[1])]
        if not rows:
            raise Failure("no such row")
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

    def measure(self, case, column, count):
        """A failure is a result too: it must be seen."""
        try:
            return self.torch(case, column, count) if column.startswith("torch") else self.danqing(case, column)
        except Failure as e:
            return {"failed": str(e)}


def ensure_venv(path):
    python = path / "bin" / "python"
    if not python.exists():
        print(f"installing torch and diffusers into {path}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", path], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", ROOT / "bench/requirements.txt"], check=True)
    return python


def better(old, new):
    """Of two rounds the faster; peaks of memory are the larger."""
    if old is None or "failed" in old:
        return new
    if "failed" in new:
        return old
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
    ours, theirs = columns.get("danqing", {}).get("gflop"), columns.get("torch-bf16", {}).get("gflop")
    if not ours or not theirs:
        return
    # Danqing counts matrices, convolutions and attention; torch the same, by its own shapes.
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
    like = {"i16": "bf16"}.get(kind, kind)  # oneDNN has no 16-bit integers: its products of the same width
    parts = [f"{100 * speed / top:.0f} % of {name}" for name, top in
             ((f"oneDNN {like}", peak_of(peaks, "oneDNN", like)), (f"registers {kind}", peak_of(peaks, "registers", kind))) if top]
    return f"{speed * 1e-9:.0f} GFLOP/s: " + ", ".join(parts)


def seconds(x):
    return "-" if x is None else f"{x:.2f} s" if x >= 1 else f"{x * 1e3:.1f} ms" if x >= 0.01 else f"{x * 1e3:.2f} ms"


def ratio(ours, theirs):
    return "-" if not ours or not theirs else f"{theirs / ours:.2f}x"


def table(all_cases, results, peaks):
    head = ["work", "torch f32", "torch bf16", "danqing", "to torch", "plain ggml", "to ggml", "i8", "to torch", "q8_0", "to torch",
            "q4_K", "to torch", "share of peak", "memory torch", "memory danqing"]
    lines = []
    for case in all_cases:
        columns = results.get(case.name, {})
        done = {c: r for c, r in columns.items() if "failed" not in r}
        for key, title in (("cold", case.title), ("seconds", "mini, warm")) if case.name == "mini" else (("seconds", case.title),):
            torch = [c for c in ("torch-f32", "torch-bf16") if c in done]
            name = min(torch, key=lambda c: done[c][key]) if torch else None
            get = lambda c: done.get(c, {}).get(key)
            show = lambda c: columns[c]["failed"] if c in columns and c not in done else seconds(get(c))
            base = get(name) if name else None
            row = [title, show("torch-f32"), show("torch-bf16"), show("danqing"), ratio(get("danqing"), base), show("ggml"),
                   ratio(get("danqing"), get("ggml"))]
            for c in ("i8", "q8_0", "q4_K"):
                row += [show(c), ratio(get(c), base)]
            ours = done.get("danqing")
            row += [share(case, ours, peaks) if ours and peaks and key == "seconds" else ""]
            memory = lambda c: f"{done[c]['peak_rss'] / 2**30:.2f} GiB" if c in done else "-"
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
    p.add_argument("--all", action="store_true", help="every case once; kept in FILE.json beside --markdown FILE, and gone on with")
    p.add_argument("--isa", choices=list(ISA), help="keep both sides to this instruction set")
    p.add_argument("--limit", type=int, default=400, help="seconds that one measurement may take (default: %(default)s)")
    p.add_argument("--case", action="append", help="only these (repeatable)")
    p.add_argument("--column", action="append", choices=NETWORK, help="only these (repeatable)")
    p.add_argument("--list", action="store_true", help="list the cases")
    p.add_argument("--markdown", type=pathlib.Path)
    p.add_argument("--json", type=pathlib.Path)
    a = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the measurement too
    if a.all:
        a.rounds = 1
        a.json = a.json or (a.markdown.with_suffix(".json") if a.markdown else None)
    with tempfile.TemporaryDirectory(prefix="danqing-bench-") as work:
        a.work = pathlib.Path(work)
        all_cases = cases(a.mini.resolve(), a.work / "checkpoint")
        if a.list:
            return print("\n".join(f"{c.name:20} {c.title}" for c in all_cases))
        if unknown := set(a.case or []) - {c.name for c in all_cases}:
            sys.exit(f"[--case] expected {', '.join(c.name for c in all_cases)}, got {', '.join(unknown)}")
        all_cases = [c for c in all_cases if not a.case or c.name in a.case]
        run(a, Runner(a), all_cases)


def run(a, runner, all_cases):
    kept = json.loads(a.json.read_text(encoding="utf-8")) if a.all and a.json and a.json.exists() else {}
    if kept and kept.get("isa") != a.isa:
        sys.exit(f"[--isa] expected {kept.get('isa')} as in {a.json}, got {a.isa}")
    results, peaks = kept.get("results", {}), kept.get("peaks")
    peak = a.danqing.parent / "danqing_peak"
    if not peaks and peak.exists():
        peaks = json.loads(runner.process([peak, "--threads", a.threads, "--json"])[0])
    start = time.time()
    for case in all_cases:
        columns = results.setdefault(case.name, {})
        wanted = [c for c in case.columns if (not a.column or c in a.column) and not (a.all and c in columns)]
        if not wanted:
            continue
        print(case.title, file=sys.stderr)
        if case.name == "load" and not (a.work / "checkpoint").exists():
            runner.process([runner.python, ROOT / "bench/torch_side.py", "save", "--dtype", "bf16", "--threads", a.threads,
                            "--model", a.work / "checkpoint"])
        for round_number in range(a.rounds):
            for c in wanted:
                count = round_number == 0 and c == "torch-bf16" and case.name not in ("mini", "load") and "1024" not in case.name
                new = runner.measure(case, c, count)
                columns[c] = better(columns.get(c) if round_number else None, new)
                print(f"  {time.time() - start:5.0f} s  {c:10} {new.get('failed') or seconds(new['seconds'])}", file=sys.stderr)
                report(a, all_cases, results, peaks)  # what is there, if the rest is stopped
        check_work(case, columns)
    print("\n" + report(a, all_cases, results, peaks))


def report(a, all_cases, results, peaks):
    head, lines = table([c for c in all_cases if c.name in results], results, peaks)
    kind = f", kept to {a.isa}" if a.isa else ""
    title = (f"{peaks['processor']} ({peaks['cpu_features']}){kind}, {a.threads} threads, oneDNN {peaks['onednn']}" if peaks
             else f"{a.threads} threads{kind}")
    if a.markdown:
        a.markdown.write_text(f"{title}\n\n{markdown(head, lines)}\n", encoding="utf-8")
    if a.json:
        a.json.write_text(json.dumps({"isa": a.isa, "peaks": peaks, "results": results}, indent=1) + "\n", encoding="utf-8")
    return f"{title}\n\n{plain(head, lines)}"


if __name__ == "__main__":
    main()
