"""The pictures and captions that the test of the mini model compares with: every thing, big, on every background.

    python domain_sheet.py --font NotoColorEmoji.ttf --out mini_domain
    tar -cJf ../../tests/data/mini_domain.tar.xz mini_domain

Writes OUT/sheet.png (one row a background, one column a thing) and OUT/domain.json (names in that order, and 16 captions,
half English, half Chinese).
"""
import argparse
import json
import os

import numpy as np
from PIL import Image

from data import OBJECTS, SIZE, World, short_caption


def captions(world):
    """16 captions as evaluate.py's "short" ones: each background once in English and once in Chinese, things spread evenly."""
    rng, out = np.random.default_rng(77), []
    for i in range(16):
        key, bg, lang = world.keys[i * len(OBJECTS) // 16], world.bgs[i // 2], ("en", "zh")[i % 2]
        scene = {"bg": bg, "items": [(key, World.BIG, 64, 66)]}
        out.append({"prompt": short_caption(scene, rng, lang), "language": lang, "thing": key, "background": bg})
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--font", required=True)
    ap.add_argument("--out", required=True)
    a = ap.parse_args()
    world = World(a.font)
    rows = [np.concatenate([world.draw({"bg": b, "items": [(k, World.BIG, 64, 66)]}) for k in world.keys], 1) for b in world.bgs]
    os.makedirs(a.out, exist_ok=True)
    Image.fromarray(np.concatenate(rows)).save(os.path.join(a.out, "sheet.png"), optimize=True)
    with open(os.path.join(a.out, "domain.json"), "w", encoding="utf-8") as f:
        json.dump({"size": SIZE, "things": world.keys, "backgrounds": world.bgs, "captions": captions(world)}, f, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main()
