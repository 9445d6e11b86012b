"""Fits the map from VAE latents to colours that previews are drawn with, and writes latent_rgb.json.

    danqing generate --prompt-file prompts.txt --dump-tensors dump -o 'dump/{index}.png'
    fit_latent_rgb.py dump/tensors.safetensors models/NAME/vae/latent_rgb.json

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
    found = dict(tensors(sys.argv[1]))
    xs, ys = [], []
    for name, z in found.items():
        if not name.endswith("vae_input"):
            continue
        picture = found[name[:-len("vae_input")] + "decoded"]
        _, c, h, w = z.shape
        s = picture.shape[2] // h
        xs.append(z[0].reshape(c, -1).T)
        ys.append(picture[0].reshape(3, h, s, w, s).mean((2, 4)).reshape(3, -1).T)
    x, y = np.concatenate(xs).astype(np.float64), np.concatenate(ys).astype(np.float64)
    ones = np.hstack([x, np.ones((len(x), 1))])
    fit, *_ = np.linalg.lstsq(ones, y, rcond=None)
    error = np.abs(ones @ fit - y).mean() * 127.5
    json.dump({
        "fitted": f"tools/fit_latent_rgb.py: least squares over {len(xs)} pictures, {len(x)} latents; "
                  f"mean error {error:.1f} of 255",
        "latent_channels": x.shape[1],
        "factors": [[round(float(v), 5) for v in row] for row in fit[:-1]],
        "bias": [round(float(v), 5) for v in fit[-1]],
    }, open(sys.argv[2], "w"), indent=1)
    print(f"mean error {error:.2f} of 255")


if __name__ == "__main__":
    main()
