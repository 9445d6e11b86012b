"""Fits the map from VAE latents to colours that previews are drawn with, and writes latent_rgb.json.

    danqing generate --prompt-file prompts.txt --dump-tensors dump -o 'dump/{index}.png'
    fit_latent_rgb.py models/NAME/vae/latent_rgb.json dump/tensors.safetensors ...

The built-in model's is fitted to its goldens (models/danqing-mini/golden/run_*.safetensors), which hold the same tensors.

Least squares of the decoded pictures, averaged to one colour a latent, on the latents that the decoder got. Needs numpy.
"""
import json
import struct
import sys

import numpy as np


def tensors(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        for name, t in header.items():
            if name != "__metadata__" and name.endswith(("vae_input", "decoded")):
                f.seek(8 + size + t["data_offsets"][0])
                data = f.read(t["data_offsets"][1] - t["data_offsets"][0])
                yield name, np.frombuffer(data, "<f4").reshape(t["shape"])


def main():
    xs, ys, pictures = [], [], 0
    for path in sys.argv[2:]:
        found = dict(tensors(path))
        for name, z in found.items():
            if not name.endswith("vae_input"):
                continue
            decoded = found[name[:-len("vae_input")] + "decoded"]
            n, c, h, w = z.shape
            s = decoded.shape[2] // h
            xs.append(z.transpose(0, 2, 3, 1).reshape(-1, c))
            ys.append(decoded.reshape(n, 3, h, s, w, s).mean((3, 5)).transpose(0, 2, 3, 1).reshape(-1, 3))
            pictures += n
    x, y = np.concatenate(xs).astype(np.float64), np.concatenate(ys).astype(np.float64)
    ones = np.hstack([x, np.ones((len(x), 1))])
    fit, *_ = np.linalg.lstsq(ones, y, rcond=None)
    error, grey = np.abs(ones @ fit - y).mean() * 127.5, np.abs(y - y.mean(0)).mean() * 127.5
    text = (f"tools/fit_latent_rgb.py: least squares over {pictures} pictures, {len(x)} latents; "
            f"mean error {error:.1f} of 255 grey levels (one colour for all: {grey:.1f})")
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        json.dump({
            "fitted": text,
            "latent_channels": x.shape[1],
            "factors": [[round(float(v), 5) for v in row] for row in fit[:-1]],
            "bias": [round(float(v), 5) for v in fit[-1]],
        }, f)
        f.write("\n")
    print(text)


if __name__ == "__main__":
    main()
