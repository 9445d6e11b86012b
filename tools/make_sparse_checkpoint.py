#!/usr/bin/env python3
"""Writes pipeline directories with the names, shapes and configs of the real models and no weights: the tensor files are
sparse (all zeros), so 29 GiB of ERNIE-Image take a few hundred kilobytes of disk. For planning, inspecting and measuring
memory; what is drawn with them means nothing.

usage: make_sparse_checkpoint.py ernie-image|z-image OUT_DIR [--tokenizer DIR] [--pe-tokenizer DIR] [--layers N]

--tokenizer     copies this directory as the tokenizer, so that the pipeline opens
--pe-tokenizer  and this one, with its chat template, as the enhancer's (default: the same)
--layers N    N layers of the denoiser and of the language models instead of all
"""
import argparse
import json
import pathlib
import shutil
import struct
import sys

BYTES = {"BF16": 2, "F32": 4, "I64": 8}


class Tensors:
    """Names and shapes, in the order in which they are added."""

    def __init__(self):
        self.entries = {}

    def add(self, name, *shape, dtype="BF16"):
        assert name not in self.entries, name
        self.entries[name] = (dtype, list(shape))

    def linear(self, name, out, into, bias=False):
        self.add(name + ".weight", out, into)
        if bias:
            self.add(name + ".bias", out)

    def conv(self, name, out, into, kernel):
        self.add(name + ".weight", out, into, kernel, kernel)
        self.add(name + ".bias", out)

    def norm(self, name, width):
        self.add(name + ".weight", width)
        self.add(name + ".bias", width)

    def write(self, path):
        header, offset = {"__metadata__": {"format": "pt"}}, 0
        for name, (dtype, shape) in self.entries.items():
            size = BYTES[dtype]
            for s in shape:
                size *= s
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
            offset += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            f.truncate(f.tell() + offset)  # a hole: read as zeros, takes no room
        return offset


def language_model(c, prefix, qk_norm=False):
    """Ministral-3 and Qwen3 as transformers names them; tied output."""
    t = Tensors()
    h, heads, kv = c["hidden_size"], c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    t.add(prefix + "embed_tokens.weight", c["vocab_size"], h)
    for i in range(c["num_hidden_layers"]):
        layer = f"{prefix}layers.{i}."
        t.add(layer + "input_layernorm.weight", h)
        t.linear(layer + "self_attn.q_proj", heads, h)
        t.linear(layer + "self_attn.k_proj", kv, h)
        t.linear(layer + "self_attn.v_proj", kv, h)
        t.linear(layer + "self_attn.o_proj", h, heads)
        if qk_norm:
            t.add(layer + "self_attn.q_norm.weight", c["head_dim"])
            t.add(layer + "self_attn.k_norm.weight", c["head_dim"])
        t.add(layer + "post_attention_layernorm.weight", h)
        t.linear(layer + "mlp.gate_proj", c["intermediate_size"], h)
        t.linear(layer + "mlp.up_proj", c["intermediate_size"], h)
        t.linear(layer + "mlp.down_proj", h, c["intermediate_size"])
    t.add(prefix + "norm.weight", h)
    return t


def add_vision_tower(t, v, text_width):
    """Pixtral's picture encoder, which the text encoder's file carries and nobody here uses."""
    h = v["hidden_size"]
    t.add("vision_tower.patch_conv.weight", h, v["num_channels"], v["patch_size"], v["patch_size"])
    t.add("vision_tower.ln_pre.weight", h)
    for i in range(v["num_hidden_layers"]):
        layer = f"vision_tower.transformer.layers.{i}."
        t.add(layer + "attention_norm.weight", h)
        t.add(layer + "ffn_norm.weight", h)
        for part in "qkvo":
            t.linear(f"{layer}attention.{part}_proj", h, h)
        t.linear(layer + "feed_forward.gate_proj", v["intermediate_size"], h)
        t.linear(layer + "feed_forward.up_proj", v["intermediate_size"], h)
        t.linear(layer + "feed_forward.down_proj", h, v["intermediate_size"])
    p = "multi_modal_projector."
    t.add(p + "norm.weight", h)
    t.linear(p + "patch_merger.merging_layer", h, 4 * h)
    t.linear(p + "linear_1", text_width, h)
    t.linear(p + "linear_2", text_width, text_width)


def autoencoder(c):
    t = Tensors()
    widths, latent = c["block_out_channels"], c["latent_channels"]

    def resnet(name, into, out):
        t.norm(name + ".norm1", into)
        t.conv(name + ".conv1", out, into, 3)
        t.norm(name + ".norm2", out)
        t.conv(name + ".conv2", out, out, 3)
        if into != out:
            t.conv(name + ".conv_shortcut", out, into, 1)

    def middle(name, width):
        resnet(name + ".resnets.0", width, width)
        t.norm(name + ".attentions.0.group_norm", width)
        for part in ("to_q", "to_k", "to_v", "to_out.0"):
            t.linear(f"{name}.attentions.0.{part}", width, width, bias=True)
        resnet(name + ".resnets.1", width, width)

    t.conv("encoder.conv_in", widths[0], c["in_channels"], 3)
    into = widths[0]
    for i, width in enumerate(widths):
        for j in range(c["layers_per_block"]):
            resnet(f"encoder.down_blocks.{i}.resnets.{j}", into, width)
            into = width
        if i + 1 < len(widths):
            t.conv(f"encoder.down_blocks.{i}.downsamplers.0.conv", width, width, 3)
    middle("encoder.mid_block", into)
    t.norm("encoder.conv_norm_out", into)
    t.conv("encoder.conv_out", 2 * latent, into, 3)
    t.conv("decoder.conv_in", into, latent, 3)
    middle("decoder.mid_block", into)
    for i, width in enumerate(reversed(widths)):
        for j in range(c["layers_per_block"] + 1):
            resnet(f"decoder.up_blocks.{i}.resnets.{j}", into, width)
            into = width
        if i + 1 < len(widths):
            t.conv(f"decoder.up_blocks.{i}.upsamplers.0.conv", width, width, 3)
    t.norm("decoder.conv_norm_out", into)
    t.conv("decoder.conv_out", c["out_channels"], into, 3)
    if c["use_quant_conv"]:
        t.conv("quant_conv", 2 * latent, 2 * latent, 1)
    if c["use_post_quant_conv"]:
        t.conv("post_quant_conv", latent, latent, 1)
    if c["_class_name"] == "AutoencoderKLFlux2":
        for name in ("bn.running_mean", "bn.running_var"):
            t.add(name, 4 * latent)
        t.add("bn.num_batches_tracked", dtype="I64")
    return t


def ernie_transformer(c):
    t = Tensors()
    h, f = c["hidden_size"], c["ffn_hidden_size"]
    t.conv("x_embedder.proj", h, c["in_channels"], 1)
    t.linear("text_proj", h, c["text_in_dim"])
    t.linear("time_embedding.linear_1", h, h, bias=True)
    t.linear("time_embedding.linear_2", h, h, bias=True)
    t.linear("adaLN_modulation.1", 6 * h, h, bias=True)
    for i in range(c["num_layers"]):
        layer = f"layers.{i}."
        t.add(layer + "adaLN_sa_ln.weight", h)
        for part in ("to_q", "to_k", "to_v", "to_out.0"):
            t.linear(f"{layer}self_attention.{part}", h, h)
        for part in ("norm_q", "norm_k"):
            t.add(f"{layer}self_attention.{part}.weight", h // c["num_attention_heads"])
        t.add(layer + "adaLN_mlp_ln.weight", h)
        t.linear(layer + "mlp.gate_proj", f, h)
        t.linear(layer + "mlp.up_proj", f, h)
        t.linear(layer + "mlp.linear_fc2", h, f)
    t.linear("final_norm.linear", 2 * h, h, bias=True)
    t.linear("final_linear", c["out_channels"], h, bias=True)
    return t


def z_image_transformer(c):
    t = Tensors()
    d, patch = c["dim"], c["in_channels"] * c["all_patch_size"][0] ** 2 * c["all_f_patch_size"][0]
    key, time, ffn = f'{c["all_patch_size"][0]}-{c["all_f_patch_size"][0]}', min(c["dim"], 256), int(c["dim"] / 3 * 8)

    def block(name, modulated):
        for part in ("to_q", "to_k", "to_v", "to_out.0"):
            t.linear(f"{name}.attention.{part}", d, d)
        for part in ("norm_q", "norm_k"):
            t.add(f"{name}.attention.{part}.weight", d // c["n_heads"])
        t.linear(name + ".feed_forward.w1", ffn, d)
        t.linear(name + ".feed_forward.w2", d, ffn)
        t.linear(name + ".feed_forward.w3", ffn, d)
        for part in ("attention_norm1", "attention_norm2", "ffn_norm1", "ffn_norm2"):
            t.add(f"{name}.{part}.weight", d)
        if modulated:
            t.linear(name + ".adaLN_modulation.0", 4 * d, time, bias=True)

    t.linear(f"all_x_embedder.{key}", d, patch, bias=True)
    t.linear(f"all_final_layer.{key}.linear", patch, d, bias=True)
    t.linear(f"all_final_layer.{key}.adaLN_modulation.1", d, time, bias=True)
    for i in range(c["n_refiner_layers"]):
        block(f"noise_refiner.{i}", True)
        block(f"context_refiner.{i}", False)
    t.linear("t_embedder.mlp.0", 1024, 256, bias=True)
    t.linear("t_embedder.mlp.2", time, 1024, bias=True)
    t.add("cap_embedder.0.weight", c["cap_feat_dim"])
    t.linear("cap_embedder.1", d, c["cap_feat_dim"], bias=True)
    t.add("x_pad_token", 1, d)
    t.add("cap_pad_token", 1, d)
    for i in range(c["n_layers"]):
        block(f"layers.{i}", True)
    return t


def yarn():
    return {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16384}


def ministral(layers):
    return {"model_type": "ministral3", "vocab_size": 131072, "hidden_size": 3072, "intermediate_size": 9216,
            "num_hidden_layers": layers or 26, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
            "hidden_act": "silu", "max_position_embeddings": 262144, "rms_norm_eps": 1e-05, "rope_parameters": yarn(),
            "sliding_window": None, "tie_word_embeddings": True}


def vae_config(name, latent_channels, quant_conv, **more):
    return {"_class_name": name, "act_fn": "silu", "block_out_channels": [128, 256, 512, 512],
            "down_block_types": ["DownEncoderBlock2D"] * 4, "up_block_types": ["UpDecoderBlock2D"] * 4,
            "in_channels": 3, "out_channels": 3, "latent_channels": latent_channels, "layers_per_block": 2,
            "mid_block_add_attention": True, "norm_num_groups": 32, "sample_size": 1024,
            "use_quant_conv": quant_conv, "use_post_quant_conv": quant_conv, **more}


def scheduler(shift):
    return {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": shift,
            "use_dynamic_shifting": False}


def ernie_image(layers):
    text = ministral(layers)
    vision = {"model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
              "num_attention_heads": 16, "head_dim": 64, "num_channels": 3, "patch_size": 14, "image_size": 1540}
    transformer = {"_class_name": "ErnieImageTransformer2DModel", "hidden_size": 4096, "num_layers": layers or 36,
                   "num_attention_heads": 32, "ffn_hidden_size": 12288, "in_channels": 128, "out_channels": 128,
                   "patch_size": 1, "text_in_dim": 3072, "qk_layernorm": True, "eps": 1e-06, "rope_theta": 256,
                   "rope_axes_dim": [32, 48, 48]}
    vae = vae_config("AutoencoderKLFlux2", 32, True, patch_size=[2, 2], batch_norm_eps=0.0001, batch_norm_momentum=0.1)
    encoder = language_model(text, "language_model.model.")
    add_vision_tower(encoder, vision, text["hidden_size"])
    index = {"_class_name": "ErnieImagePipeline", "pe": ["transformers", "Ministral3ForCausalLM"],
             "pe_tokenizer": ["transformers", "TokenizersBackend"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
             "text_encoder": ["transformers", "Mistral3Model"], "tokenizer": ["transformers", "TokenizersBackend"],
             "transformer": ["diffusers", "ErnieImageTransformer2DModel"], "vae": ["diffusers", "AutoencoderKLFlux2"]}
    return index, scheduler(4.0), {
        "transformer": (transformer, ernie_transformer(transformer)),
        "text_encoder": ({"architectures": ["Mistral3Model"], "model_type": "mistral3", "text_config": text,
                          "vision_config": vision, "tie_word_embeddings": True}, encoder),
        "vae": (vae, autoencoder(vae)),
        "pe": ({"architectures": ["Ministral3ForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, **text},
               language_model(text, "model.")),
    }


def z_image(layers):
    text = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2560,
            "intermediate_size": 9728, "num_hidden_layers": layers or 36, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu", "attention_bias": False,
            "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "rope_scaling": None,
            "sliding_window": None, "use_sliding_window": False, "tie_word_embeddings": True}
    transformer = {"_class_name": "ZImageTransformer2DModel", "dim": 3840, "n_layers": layers or 30,
                   "n_refiner_layers": 2, "n_heads": 30, "n_kv_heads": 30, "in_channels": 16, "cap_feat_dim": 2560,
                   "all_patch_size": [2], "all_f_patch_size": [1], "axes_dims": [32, 48, 48],
                   "axes_lens": [1536, 512, 512], "norm_eps": 1e-05, "qk_norm": True, "rope_theta": 256.0,
                   "t_scale": 1000.0}
    vae = vae_config("AutoencoderKL", 16, False, scaling_factor=0.3611, shift_factor=0.1159, force_upcast=True)
    index = {"_class_name": "ZImagePipeline", "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
             "text_encoder": ["transformers", "Qwen3Model"], "tokenizer": ["transformers", "Qwen2Tokenizer"],
             "transformer": ["diffusers", "ZImageTransformer2DModel"], "vae": ["diffusers", "AutoencoderKL"]}
    return index, scheduler(3.0), {
        "transformer": (transformer, z_image_transformer(transformer)),
        "text_encoder": (text, language_model(text, "model.", qk_norm=True)),
        "vae": (vae, autoencoder(vae)),
    }


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model", choices=("ernie-image", "z-image"))
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--tokenizer", type=pathlib.Path)
    p.add_argument("--pe-tokenizer", type=pathlib.Path)
    p.add_argument("--layers", type=int)
    o = p.parse_args()
    if o.layers is not None and o.layers < 1:
        p.error("--layers: expected at least 1")
    if o.out.exists():
        p.error(f"{o.out} exists already")
    index, schedule, parts = (ernie_image if o.model == "ernie-image" else z_image)(o.layers)
    write_json(o.out / "model_index.json", index)
    write_json(o.out / "scheduler/scheduler_config.json", schedule)
    for role, (config, tensors) in parts.items():
        write_json(o.out / role / "config.json", config)
        name = "diffusion_pytorch_model" if role in ("transformer", "vae") else "model"
        size = tensors.write(o.out / role / f"{name}.safetensors")
        print(f"{role}: {len(tensors.entries)} tensors, {size / 2**30:.3f} GiB")
    for role in ("tokenizer", "pe_tokenizer"):
        if role in index:
            source = o.pe_tokenizer if role == "pe_tokenizer" and o.pe_tokenizer else o.tokenizer
            if source:
                shutil.copytree(source, o.out / role)
            else:
                (o.out / role).mkdir()


if __name__ == "__main__":
    sys.exit(main())
