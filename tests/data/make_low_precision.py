#!/usr/bin/env python3
"""Files with scales and what the reference libraries decode them to: low_precision.tar.xz.
usage: make_low_precision.py OUT_DIR     (packages torch, safetensors, gguf, comfy-kitchen; it needs no card)

comfy.safetensors   weights as ComfyUI stores them, made and decoded by comfy-kitchen: NVFP4 and MXFP8 with scales in
                    cuBLAS' tiles, FP8 with one scale, int8 with one a row; expected.safetensors holds all their values
nvfp4_gguf          blocks of ggml's NVFP4 and what gguf-py decodes them to
Sizes are no multiples of a tile (128 rows by 4 blocks), so that tiles are padded and several lie side by side and below each other.
"""
import json
import pathlib
import sys

import gguf
import numpy as np
import torch
from comfy_kitchen.backends.eager import quantization as ck
from gguf import quants
from safetensors.torch import save_file

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
torch.manual_seed(7)


def weight(rows, columns):
    return torch.randn(rows, columns) * torch.exp(torch.randn(rows, 1))


stored, values = {}, {}
w = weight(272, 80)  # 3 x 2 tiles
scale = w.abs().max() / (448.0 * 6.0)
q, blocks = ck.quantize_nvfp4(w, scale)
stored["nvfp4.weight"], stored["nvfp4.weight_scale"], stored["nvfp4.weight_scale_2"] = q, blocks, scale
stored["nvfp4.comfy_quant"] = torch.tensor(list(json.dumps({"format": "nvfp4"}).encode()), dtype=torch.uint8)
values["nvfp4"] = ck.dequantize_nvfp4(q, scale, blocks, torch.float32)[::5]

w = weight(160, 160)  # 2 x 2 tiles of 32 columns a block
q, blocks = ck.quantize_mxfp8(w)
stored["mxfp8.weight"], stored["mxfp8.weight_scale"] = q, blocks.view(torch.uint8)
stored["mxfp8.comfy_quant"] = torch.tensor(list(json.dumps({"format": "mxfp8"}).encode()), dtype=torch.uint8)
values["mxfp8"] = ck.dequantize_mxfp8(q, blocks, torch.float32)[::5]

w = weight(16, 48)
scale = w.abs().max() / 448.0
q = ck.quantize_per_tensor_fp8(w, scale, torch.float8_e4m3fn)
stored["fp8.weight"], stored["fp8.weight_scale"], stored["fp8.input_scale"] = q, scale, torch.tensor(2.0)
values["fp8"] = ck.dequantize_per_tensor_fp8(q, scale, torch.float32)

q, scale = ck.quantize_int8_rowwise(w)
stored["int8.weight"], stored["int8.weight_scale"] = q, scale
stored["int8.comfy_quant"] = torch.tensor(list(json.dumps({"format": "int8_tensorwise"}).encode()), dtype=torch.uint8)
values["int8"] = ck.dequantize_int8_simple(q, scale)

# Every code of the narrow floats, and floats between them rounded by torch.
codes = torch.arange(256, dtype=torch.uint8)
for name, dtype in (("f8_e4m3", torch.float8_e4m3fn), ("f8_e5m2", torch.float8_e5m2)):
    x = torch.cat([codes.view(dtype).float().nan_to_num(0, 0, 0), torch.randn(300) * torch.exp2(torch.randint(-20, 8, (300,)).float())])
    x = x.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max)
    values[f"round.{name}.in"], values[f"round.{name}.out"] = x, x.to(dtype).view(torch.uint8)
save_file({k: v.contiguous() for k, v in stored.items()}, out / "comfy.safetensors")
save_file({k: v.contiguous() for k, v in values.items()}, out / "expected.safetensors")

r = np.random.default_rng(3)
raw = r.integers(0, 256, (24, 36), dtype=np.uint8)
raw[:, :4] &= 0x7E  # finite scales without sign
decoded = quants.dequantize(raw.reshape(1, -1), gguf.GGMLQuantizationType.NVFP4).reshape(24, 64)
save_file({"raw": torch.from_numpy(raw), "values": torch.from_numpy(decoded.astype(np.float32))}, out / "nvfp4_gguf.safetensors")
