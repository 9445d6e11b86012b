"""`convert`: files and pipelines in other dtypes, what they hold and that they draw."""
import json
import os
import signal
import struct
import time

from harness import GGUF, MINI, ONE, SMALL, TINY, Z_TINY, CliTest, main, png_pixels
from tensor_files import floats, read_gguf, read_safetensors, write_gguf, write_safetensors

TRANSFORMER = TINY / "transformer/diffusion_pytorch_model.safetensors"
DRAW = ("a cat", "--seed", "3", "--prompt-enhancer", "off", *SMALL)


def difference(a, b):
    """Mean absolute difference of the pictures' 8-bit values."""
    (wa, ha, pa), (wb, hb, pb) = png_pixels(a), png_pixels(b)
    assert (wa, ha) == (wb, hb)
    return sum(abs(x - y) for x, y in zip(pa, pb)) / len(pa)


class Convert(CliTest):
    def convert(self, *args):
        return json.loads(self.run_ok("convert", *args, "--json", *ONE).stdout)

    def test_types_by_tensor(self):
        report = self.convert(TRANSFORMER, "q4.gguf", "--type", "q4_K", "--check")
        types = {t["name"]: t["type"] for t in report["tensors"]}
        self.assertEqual(types["layers.0.self_attention.to_q.weight"], "q4_K")
        self.assertEqual(types["layers.1.mlp.linear_fc2.weight"], "q4_K")
        for kept in ("adaLN_modulation.1.weight", "time_embedding.linear_1.weight", "text_proj.weight",
                     "final_linear.weight", "final_norm.linear.weight", "x_embedder.proj.weight",
                     "layers.0.adaLN_sa_ln.weight", "layers.0.self_attention.norm_q.weight", "final_linear.bias"):
            self.assertEqual(types[kept], "f32", kept)
        # 4.5 bits a weight: about a tenth of the size of Gaussian weights; kept ones have none
        for t in report["tensors"]:
            self.assertTrue(0.03 < t["rel_l2"] < 0.12 if t["type"] == "q4_K" else t["rel_l2"] == 0, t)
        self.assertEqual(types[report["worst"]], "q4_K")
        metadata, tensors = read_gguf(self.dir / "q4.gguf")
        self.assertEqual(metadata["general.architecture"], "ernie_image")
        self.assertEqual({k: v[0].lower() for k, v in tensors.items()}, {k: v.lower() for k, v in types.items()})
        source = read_safetensors(TRANSFORMER)
        for name, (dtype, shape, raw) in tensors.items():
            self.assertEqual(shape, source[name][1])
            if dtype == "F32":
                self.assertEqual(raw, source[name][2], name)
        self.assertEqual(report["bytes_out"], sum(len(raw) for _, _, raw in tensors.values()))
        self.assertEqual(self.files(), ["q4.gguf"])

    def test_rules(self):
        report = self.convert(TRANSFORMER, "x.gguf", "--type", "q4_0", "--tensor-type", "*.to_?.weight=q8_0",
                              "--tensor-type", "mlp=bf16", "--tensor-type", "layers.1.mlp.up_proj.weight=keep",
                              "--tensor-type", "text_proj=q4_0", "--tensor-type", "norm_k=drop")
        types = {t["name"]: t["type"] for t in report["tensors"]}
        self.assertEqual(types["layers.0.self_attention.to_k.weight"], "q8_0")
        self.assertEqual(types["layers.0.self_attention.to_out.0.weight"], "q4_0")
        self.assertEqual(types["layers.0.mlp.up_proj.weight"], "bf16")
        self.assertEqual(types["layers.1.mlp.up_proj.weight"], "f32")
        self.assertEqual(types["text_proj.weight"], "q4_0")
        self.assertNotIn("layers.0.self_attention.norm_k.weight", types)
        self.assertIn("layers.0.self_attention.norm_q.weight", types)

    def test_dry_run_writes_nothing(self):
        r = self.run_ok("convert", TRANSFORMER, "x.gguf", "--type", "q6_K", "--dry-run", *ONE)
        self.assertIn("modulation", r.stdout)
        self.assertEqual(self.files(), [])

    def test_the_same_bytes_with_any_number_of_threads(self):
        for threads in ("1", "3"):
            self.run_ok("convert", TRANSFORMER, f"{threads}.gguf", "--type", "q6_K", "--quiet", "--threads", threads)
        self.assertEqual(read_gguf(self.dir / "1.gguf")[1], read_gguf(self.dir / "3.gguf")[1])

    def test_back_to_floats(self):
        """f32 -> bf16 GGUF -> f32 safetensors is the rounding of the values, nothing else."""
        self.convert(TRANSFORMER, "b.gguf", "--type", "bf16")
        self.convert("b.gguf", "back.safetensors", "--type", "f32")
        before, back = read_safetensors(TRANSFORMER), read_safetensors(self.dir / "back.safetensors")
        self.assertEqual(before.keys(), back.keys())
        for name, (dtype, shape, raw) in back.items():
            self.assertEqual((dtype, shape), ("F32", before[name][1]))
            if len(shape) < 2:
                self.assertEqual(raw, before[name][2])
                continue
            for want, got in list(zip(floats("F32", before[name][2]), floats("F32", raw)))[:2000]:
                bits = struct.unpack("<I", struct.pack("<f", want))[0]
                bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000
                self.assertEqual(struct.pack("<f", got), struct.pack("<I", bits), name)

    def test_fp8_with_scales(self):
        report = self.convert(TRANSFORMER, "x.safetensors", "--type", "fp8", "--check")
        tensors = read_safetensors(self.dir / "x.safetensors")
        self.assertEqual(tensors["layers.0.mlp.up_proj.weight"][0], "F8_E4M3")
        self.assertEqual(tensors["layers.0.mlp.up_proj.weight_scale"][:2], ("F32", []))
        largest = max(map(abs, floats("F32", read_safetensors(TRANSFORMER)["layers.0.mlp.up_proj.weight"][2])))
        scale = floats("F32", tensors["layers.0.mlp.up_proj.weight_scale"][2])[0]
        self.assertAlmostEqual(scale, largest / 448, delta=1e-6 * largest)
        self.assertTrue(0.01 < report["rel_l2"] < 0.04)  # 3 bits of mantissa: at most 1/16, 0.026 in the mean square
        j = json.loads(self.run_ok("inspect", "x.safetensors", "--json", "--tensors").stdout)["components"][0]
        self.assertEqual(j["role"], "transformer")
        entry = {t["name"]: t for t in j["tensor_list"]}
        self.assertEqual(entry["layers.0.mlp.up_proj.weight"]["scale"], "one")
        self.assertNotIn("layers.0.mlp.up_proj.weight_scale", entry)
        self.generate(*DRAW, "-m", TINY, "-o", "whole.png")
        self.generate(*DRAW, "-m", TINY, "--transformer", "x.safetensors", "-o", "fp8.png")
        self.assertLess(difference(self.dir / "whole.png", self.dir / "fp8.png"), 8)
        # from FP8 on to a GGUF: the scales are in the values
        again = self.convert("x.safetensors", "y.gguf", "--type", "q8_0")
        self.assertIn("f8_e4m3", {t["from"] for t in again["tensors"]})
        self.generate(*DRAW, "-m", TINY, "--transformer", "y.gguf", "-o", "q8.png")
        self.assertLess(difference(self.dir / "fp8.png", self.dir / "q8.png"), 2)

    def test_a_pipeline_without_an_enhancer(self):
        self.run_ok("convert", Z_TINY, "z", "--type", "q8_0", *ONE)  # the usual parts, of which it lacks one
        self.generate("a cat", "-m", "z", "-o", "z.png", "--size", "64x64", "--steps", "1", "--seed", "1", *ONE)
        self.assert_refused(2, "convert", Z_TINY, "z2", "--type", "q8_0", "--components", "pe", says="got 'pe'")

    def test_pipeline(self):
        report = self.convert(MINI, "small", "--type", "q8_0")
        self.assertEqual({c["role"] for c in report["components"]}, {"transformer", "text_encoder", "pe"})
        self.assertEqual(report["copied"], ["vae"])
        self.assertFalse((self.dir / "small/transformer/diffusion_pytorch_model.safetensors").exists())
        self.assertEqual((self.dir / "small/vae/diffusion_pytorch_model.safetensors").read_bytes(),
                         (MINI / "vae/diffusion_pytorch_model.safetensors").read_bytes())
        for name in ("model_index.json", "danqing.json", "tokenizer/tokenizer.json", "scheduler/scheduler_config.json",
                     "pe/generation_config.json", "transformer/config.json"):
            self.assertEqual((self.dir / "small" / name).read_bytes(), (MINI / name).read_bytes())
        j = json.loads(self.run_ok("inspect", "small", "--json").stdout)
        self.assertEqual({c["role"]: c["format"] for c in j["components"]},
                         {"transformer": "gguf", "text_encoder": "gguf", "vae": "safetensors", "pe": "gguf"})
        self.generate(*DRAW, "-m", MINI, "-o", "a.png")
        self.generate(*DRAW, "-m", "small", "-o", "b.png")
        self.assertLess(difference(self.dir / "a.png", self.dir / "b.png"), 6)
        self.assertEqual([p.name for p in self.dir.iterdir() if p.name.startswith(".")], [])

    def test_chosen_components(self):
        report = self.convert(TINY, "out", "--type", "bf16", "--format", "safetensors", "--components", "transformer,pe")
        self.assertEqual({c["role"] for c in report["components"]}, {"transformer", "pe"})
        self.assertEqual(set(report["copied"]), {"text_encoder", "vae"})
        self.assertEqual({v[0] for v in read_safetensors(self.dir / "out/transformer/diffusion_pytorch_model.safetensors").values()},
                         {"BF16"})

    def test_wrong_requests(self):
        out = ("x.gguf", "--type", "q4_K")
        for args in ((TRANSFORMER, "x.bin", "--type", "q4_K"), (TRANSFORMER, "x.gguf", "--type", "q4_Z"),
                     (TRANSFORMER, "x.gguf", "--type", "fp8"), (TRANSFORMER, "x.safetensors", "--type", "q4_K"),
                     (TRANSFORMER, "x.gguf", "--type", "iq2_xxs"), (TRANSFORMER, *out, "--tensor-type", "q4_K"),
                     (TRANSFORMER, *out, "--tensor-type", "=q4_K"), (TRANSFORMER, *out, "--tensor-type", "a=b"),
                     (TRANSFORMER, *out, "--tensor-type", "text_proj=q4_K"),  # rows of 96
                     (TRANSFORMER, *out, "--components", "vae"), (TINY, "y", "--type", "q4_K", "--components", "unet"),
                     (TRANSFORMER, *out, "--format", "zip"), (TRANSFORMER, "x.gguf"), (TRANSFORMER,)):
            with self.subTest(args=args):
                self.assert_refused(2, "convert", *args)
        self.assert_refused(1, "convert", TRANSFORMER, "missing/x.gguf", "--type", "q8_0", "--quiet")
        (self.dir / "there.gguf").write_text("mine")
        (self.dir / "folder").mkdir()
        self.assert_refused(2, "convert", TRANSFORMER, "there.gguf", "--type", "q8_0", says="--overwrite")
        self.assert_refused(2, "convert", TINY, "folder", "--type", "q8_0")
        self.assertEqual((self.dir / "there.gguf").read_text(), "mine")
        self.run_ok("convert", TRANSFORMER, "there.gguf", "--type", "q8_0", "--overwrite", "--quiet", *ONE)
        self.assertEqual((self.dir / "there.gguf").read_bytes()[:4], b"GGUF")

    def test_bad_input(self):
        (self.dir / "cut.safetensors").write_bytes(TRANSFORMER.read_bytes()[:100000])
        nan = struct.pack("<256f", *([0.5] * 100 + [float("nan")] + [0.5] * 155))
        write_safetensors(self.dir / "nan.safetensors", {"layers.0.w.weight": ("F32", [1, 256], nan)})
        big = struct.pack("<256f", *([1e6] * 256))
        write_safetensors(self.dir / "big.safetensors", {"layers.0.w.weight": ("F32", [1, 256], big)})
        self.assert_refused(3, "convert", "cut.safetensors", "x.gguf", "--type", "q8_0", says="incomplete")
        self.assert_refused(3, "convert", "nan.safetensors", "x.gguf", "--type", "q4_K", "--quiet", says="layers.0.w.weight")
        self.assert_refused(3, "convert", "big.safetensors", "x.gguf", "--type", "f16", "--quiet", says="f16 can hold")
        self.assert_refused(3, "convert", "nowhere", "x.gguf", "--type", "q8_0")
        self.assert_refused(3, "convert", MINI / "tokenizer/tokenizer.json", "x.gguf", "--type", "q8_0")

    def test_interrupted(self):
        """A file of zeros that takes long enough: Ctrl-C leaves nothing behind."""
        size = 1 << 32
        header = json.dumps({"layers.0.w.weight": {"dtype": "BF16", "shape": [size // 8192, 4096], "data_offsets": [0, size]}}).encode()
        with open(self.dir / "big.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header)
            f.truncate(8 + len(header) + size)
        p = self.start("convert", "big.safetensors", "x.gguf", "--type", "q5_K", "--quiet", *ONE)
        deadline = time.monotonic() + 60
        while not any(name.startswith(".danqing-part") for name in os.listdir(self.dir)) and time.monotonic() < deadline:
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=120)
        self.assertEqual((p.returncode, out), (130, ""), err)
        self.assertEqual(self.files(), ["big.safetensors"])


class Packagings(CliTest):
    """Files as other programs write them, made from the tiny model by renaming."""

    def picture(self, *args):
        self.generate(*DRAW, "-m", TINY, "-o", "p.png", "--overwrite", *args)
        return png_pixels(self.dir / "p.png")

    def test_text_encoder_of_llama_cpp(self):
        """Permuted q and k, llama.cpp's names: the same picture, bit for bit, as from the safetensors."""
        parts = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
                 "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
                 "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
        tensors = {}
        for name, (dtype, shape, raw) in read_safetensors(TINY / "text_encoder/model.safetensors").items():
            if not name.startswith("language_model.model."):
                continue
            name = name.removeprefix("language_model.model.")
            if name.startswith("layers."):
                _, layer, part = name.removesuffix(".weight").split(".", 2)
                if part in ("self_attn.q_proj", "self_attn.k_proj"):
                    row, head = len(raw) // shape[0], 128
                    rows = [raw[i * row:(i + 1) * row] for i in range(shape[0])]
                    order = [h + j * head // 2 + i for h in range(0, shape[0], head) for i in range(head // 2) for j in (0, 1)]
                    raw = b"".join(rows[i] for i in order)
                name = f"blk.{layer}.{parts[part]}.weight"
            else:
                name = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}[name]
            tensors[name] = (dtype, shape, raw)
        write_gguf(self.dir / "ministral.gguf", tensors, {"general.architecture": "mistral3", "mistral3.attention.key_length": 128})
        whole = self.picture()
        self.assertEqual(self.picture("--text-encoder", "ministral.gguf"), whole)
        # and quantised: rows move as blocks
        self.run_ok("convert", "ministral.gguf", "q8.gguf", "--type", "q8_0", "--quiet", *ONE)
        self.assertIn("model.layers.0.self_attn.q_proj.weight", read_gguf(self.dir / "q8.gguf")[1])
        self.assertNotEqual(self.picture("--text-encoder", "q8.gguf"), whole)
        report = json.loads(self.run_ok("inspect", "ministral.gguf", "--json").stdout)
        self.assertEqual(report["components"][0]["role"], "text_encoder")

    def test_denoisers(self):
        """Prefixes and no architecture, plain FP8, and FP8 with each spelling of the scale."""
        whole, source = self.picture(), read_safetensors(TRANSFORMER)
        write_gguf(self.dir / "a.gguf", {"model.diffusion_model." + k: v for k, v in source.items()}, {})
        self.assertEqual(self.picture("--transformer", "a.gguf"), whole)
        self.run_ok("convert", TRANSFORMER, "fp8.safetensors", "--type", "fp8", "--quiet", *ONE)
        scaled = read_safetensors(self.dir / "fp8.safetensors")
        half = struct.pack("<f", 0.5)
        plain = {k: v for k, v in scaled.items() if not k.endswith("_scale")}
        write_safetensors(self.dir / "plain.safetensors", plain)
        unscaled, pictures = self.picture("--transformer", "plain.safetensors"), []
        self.assertNotEqual(unscaled, whole)
        for suffix, marker in (("weight_scale", None), ("scale_weight", "scaled_fp8"), ("weight_scale_inv", None)):
            tensors = dict(plain)
            for name in scaled:
                if name.endswith(".weight_scale"):
                    layer = name.removesuffix(".weight_scale")
                    tensors[f"{layer}.{suffix}"] = ("F32", [], half)
                    if marker:
                        tensors[f"{layer}.scale_input"] = ("F32", [], half)
            if marker:
                tensors[marker] = ("F8_E4M3", [2], b"\0\0")
            write_safetensors(self.dir / "s.safetensors", tensors)
            pictures.append(self.picture("--transformer", "s.safetensors"))
        self.assertEqual(pictures, pictures[:1] * 3)
        self.assertNotEqual(pictures[0], unscaled)

    def test_every_type_draws(self):
        self.generate(*DRAW, "-m", TINY, "-o", "whole.png")
        for kind, most in (("q8_0", 3), ("q6_K", 6), ("q5_K", 10), ("q5_0", 12), ("q5_1", 12), ("q4_K", 20), ("q4_0", 25),
                           ("q4_1", 20), ("q3_K", 40), ("q2_K", 60), ("iq4_nl", 20), ("iq4_xs", 20), ("mxfp4", 40),
                           ("nvfp4", 40), ("f16", 1), ("bf16", 1)):
            with self.subTest(type=kind):
                self.run_ok("convert", TRANSFORMER, f"{kind}.gguf", "--type", kind, "--quiet", *ONE)
                self.generate(*DRAW, "-m", TINY, "--transformer", f"{kind}.gguf", "-o", f"{kind}.png")
                self.assertLess(difference(self.dir / "whole.png", self.dir / f"{kind}.png"), most)

    def test_broken_files(self):
        source = read_safetensors(TRANSFORMER)
        name = "layers.0.mlp.up_proj.weight"
        rows, columns = source[name][1]
        fp8 = {**source, name: ("F8_E4M3", [rows, columns], b"\x38" * rows * columns)}
        for what, change in (("wrong shape", {name + "_scale": ("F32", [3], bytes(12))}),
                             ("no scale", {"scaled_fp8": ("F8_E4M3", [0], b"")}),
                             ("unknown format", {name.removesuffix("weight") + "comfy_quant": ("U8", [16], b'{"format":"int"}')})):
            with self.subTest(what=what):
                write_safetensors(self.dir / "x.safetensors", {**fp8, **change})
                self.assert_refused(3, "generate", *DRAW, "-m", TINY, "--transformer", "x.safetensors", "-o", "n.png",
                                    says=name)
        metadata, tensors = read_gguf(GGUF / "ernie-tiny-Q8_0.gguf")
        write_gguf(self.dir / "x.gguf", tensors, {})
        data = bytearray((self.dir / "x.gguf").read_bytes())
        at = data.index(b"final_linear.weight") + len("final_linear.weight") + 4 + 16
        data[at:at + 4] = struct.pack("<I", 99)
        (self.dir / "x.gguf").write_bytes(data)
        self.assert_refused(3, "generate", *DRAW, "-m", TINY, "--transformer", "x.gguf", "-o", "n.png", says="number 99")


if __name__ == "__main__":
    main()
