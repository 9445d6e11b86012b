#!/usr/bin/env python3
"""Packs a Z-Image fixture without its weights, which were drawn from seeded generators: a recipe of the draws is kept.

usage: pack_zimage_tiny.py FIXTURE SPEC.json OUT.tar.xz   (needs torch and safetensors, for packing only)

FIXTURE is the reference tree's zimage-tiny, SPEC the file it was made from; both rules of drawing are those of the tree's
make/common.py and make/build_zimage.py. The recipe's format is explained in tests/random_model/main.cpp.
"""
import hashlib, json, math, pathlib, shutil, subprocess, sys, tempfile
import numpy as np
import torch
from safetensors.torch import load_file

GOLDENS = ["tokens", "text_f32", "dit_f32", "scheduler", "init_latents", "vae", "lora", "lora_trainer_alpha", "lora_out", "run_g0_f32", "run_g0_bf16", "img2img",
           "run_g5_norm_f32", "run_g5_trunc_f32"]
GAINS = {"text_encoder": [("embed_tokens", 0.6), ("q_norm", 2.0), ("k_norm", 2.0)],
         "transformer": [("adaLN_modulation", 0.8), ("norm_q", 1.3), ("norm_k", 1.3), ("pad_token", 0.7)],
         "vae": [("conv_out.bias", 0.5)]}
TAGS = {"text_encoder": "te.", "transformer": "dit.", "vae": "vae."}


def draw_of(component, name, weight):
    """Generator key, standard deviation, mean, last factor."""
    key, gain = TAGS[component] + name, 1.0
    for part, value in GAINS[component]:
        if part in name:
            gain = value
    if name == "model.embed_tokens.weight":  # tied to the output, which was drawn after it
        return "te.lm_head.weight", 1 / math.sqrt(weight.shape[1]), 0.0, 1.0
    if weight.ndim == 1:
        norm = name.endswith(".weight")
        return key, (0.15 if norm else 0.1) * gain, 1.0 if norm else 0.0, 1.0
    if "pad_token" in name:
        return key, gain, 0.0, 1.0
    return key, gain / math.sqrt(int(np.prod(weight.shape[1:]))), 0.0, 0.6 if name == "decoder.conv_out.weight" else 1.0


def recipe_of(seed, component, name, weight):
    key, std, mean, times = draw_of(component, name, weight)
    number = int.from_bytes(hashlib.sha256(f"{seed}/{key}".encode()).digest()[:6], "little")
    value = torch.randn(tuple(weight.shape), generator=torch.Generator().manual_seed(number)) * std + mean
    if times != 1.0:
        value.mul_(times)
    assert torch.equal(value.to(torch.bfloat16), weight), f"{name} was drawn in another way"
    # Values whose rounding the last places of another machine's logarithm and cosine could turn (5e-7 of the draw).
    margin = 5e-7 * std * times + 2e-7 * value.abs()
    near = ((value - margin).to(torch.bfloat16) != (value + margin).to(torch.bfloat16)).flatten().nonzero().flatten()
    bits, last, fix = weight.flatten().view(torch.int16), 0, []
    for at in near.tolist():
        fix += [at - last, int(bits[at]) & 0xFFFF]
        last = at
    t = {"name": name, "shape": list(weight.shape), "seed": number, "std": std, "mean": mean}
    return {**t, **({"times": times} if times != 1.0 else {}), **({"fix": fix} if fix else {})}


def main(fixture, spec, out):
    fixture, seed = pathlib.Path(fixture), json.loads(pathlib.Path(spec).read_text())["seed"]
    with tempfile.TemporaryDirectory() as work:
        model = pathlib.Path(work) / "fixtures" / "zimage-tiny"
        shutil.copytree(fixture, model, ignore=lambda d, names: [n for n in names if n == "golden" or
                        (n.endswith(".safetensors") and pathlib.Path(d).name != "golden")])
        (model / "golden").mkdir()
        for name in GOLDENS:
            for end in ("json", "safetensors"):
                shutil.copy(fixture / "golden" / f"{name}.{end}", model / "golden")
        shutil.copy(fixture / "golden" / "errors.json", model / "golden")
        files = [{"path": f"{c}/{f.name}", "tensors": [recipe_of(seed, c, n, w) for n, w in load_file(str(f)).items()]}
                 for c in TAGS for f in sorted((fixture / c).glob("*.safetensors"))]
        (model / "weights.json").write_text(json.dumps({"files": files}, separators=(",", ":")))
        subprocess.run(["chmod", "-R", "u+w", work], check=True)
        subprocess.run(f"tar --sort=name --owner=0 --group=0 --mtime=2024-01-01 -C {work} -cf - fixtures | xz -9e > {out}",
                       shell=True, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:4])
