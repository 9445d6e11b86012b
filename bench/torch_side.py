"""One measurement with torch, in a process of its own; bench/vs_torch.py starts it. Prints one line of JSON.

Sizes are the published ERNIE-Image configs, as in apps/bench/presets.cpp; weights are random. FLOPs are counted by torch
itself (--count), so that the driver can check that both sides do the same work.
"""
import argparse
import json
import time

import torch

ROPE = {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}


def text_config(layers):
    from transformers import Ministral3Config

    return Ministral3Config(vocab_size=131072, hidden_size=3072, intermediate_size=9216, num_hidden_layers=layers,
                            num_attention_heads=32, num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-5,
                            max_position_embeddings=262144, tie_word_embeddings=True, rope_parameters=dict(ROPE))


def random_model(make, dtype):
    """Built in its dtype, so that the peak of memory is the model's own; torch's slow initialisation is left out."""
    saved = {n: getattr(torch.nn.init, n) for n in dir(torch.nn.init) if n.endswith("_") and not n.startswith("_")}
    for name in saved:
        setattr(torch.nn.init, name, lambda tensor, *args, **kwargs: tensor)
    torch.set_default_dtype(dtype)
    model = make().eval()
    torch.set_default_dtype(torch.float32)
    for name, f in saved.items():
        setattr(torch.nn.init, name, f)
    for name, p in model.named_parameters():
        if p.ndim > 1:
            p.data.uniform_(-1, 1).mul_((3.0 / p[0].numel()) ** 0.5)
        else:
            p.data.fill_(0.0 if name.endswith("bias") else 1.0)
    return model


def timed(run, reps, warm_up=True):
    """Warm-up, then `reps` times."""
    if warm_up:
        run()
    seconds = []
    for _ in range(reps):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    seconds.sort()
    return {"seconds": seconds[len(seconds) // 2], "best": seconds[0]}


def counted(run, result, count):
    if count:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # attention as plain products
            run()
        result["gflop"] = counter.get_total_flops() * 1e-9
    return result


def denoiser(a):
    from diffusers import ErnieImageTransformer2DModel

    model = random_model(lambda: ErnieImageTransformer2DModel(
        hidden_size=4096, num_attention_heads=32, num_layers=a.layers, ffn_hidden_size=12288, in_channels=128, out_channels=128,
        patch_size=1, text_in_dim=3072, rope_theta=256, rope_axes_dim=(32, 48, 48), eps=1e-6, qk_layernorm=True), a.dtype)
    latents = torch.randn(1, 128, a.size // 16, a.size // 16).to(a.dtype)
    text = torch.randn(1, a.tokens, 3072).to(a.dtype)
    step = torch.tensor([500.0], dtype=a.dtype)
    lengths = torch.tensor([a.tokens])

    def run():
        model(hidden_states=latents, timestep=step, text_bth=text, text_lens=lengths, return_dict=False)

    return counted(run, timed(run, a.reps, a.warm_up), a.count)


def z_image(a):
    from diffusers import ZImageTransformer2DModel

    model = random_model(lambda: ZImageTransformer2DModel(dim=3840, n_layers=a.layers, n_refiner_layers=2, n_heads=30, n_kv_heads=30,
                                                          cap_feat_dim=2560, axes_lens=[1536, 512, 512]), a.dtype)
    latents = [torch.randn(16, 1, a.size // 8, a.size // 8).to(a.dtype)]
    text = [torch.randn(a.tokens, 2560).to(a.dtype)]
    time = torch.tensor([0.5], dtype=a.dtype)

    def run():
        model(latents, time, text, return_dict=False)

    return counted(run, timed(run, a.reps, a.warm_up), a.count)


def text(a):
    """All `layers` run; Danqing leaves out the last one of its config and is given one more."""
    from transformers import Ministral3Model

    model = random_model(lambda: Ministral3Model(text_config(a.layers)), a.dtype)
    ids = torch.arange(a.tokens)[None] * 7919 % 131072

    def run():
        model(input_ids=ids, output_hidden_states=True, use_cache=False)

    return counted(run, timed(run, a.reps, a.warm_up), a.count)


def enhancer(a):
    """A prompt, then blocks of new tokens, one stream, with the cache that transformers uses."""
    from transformers import DynamicCache, Ministral3ForCausalLM

    model = random_model(lambda: Ministral3ForCausalLM(text_config(a.layers)), a.dtype)
    model.tie_weights()
    cache = DynamicCache(config=model.config)
    model(input_ids=torch.arange(a.tokens)[None] * 7919 % 131072, past_key_values=cache, use_cache=True, logits_to_keep=1)

    def run():
        for i in range(a.new_tokens):
            model(input_ids=torch.tensor([[(i * 31 + 5) % 131072]]), past_key_values=cache, use_cache=True)

    result = counted(run, timed(run, a.reps, a.warm_up), a.count)
    result["tokens_per_second"] = a.new_tokens / result["seconds"]
    return result


def vae(a):
    from diffusers import AutoencoderKLFlux2

    model = random_model(lambda: AutoencoderKLFlux2(
        block_out_channels=(128, 256, 512, 512), latent_channels=32, layers_per_block=2, norm_num_groups=32,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4), a.dtype)
    del model.encoder  # Danqing loads the decoder alone
    z = torch.randn(1, 32, a.size // 8, a.size // 8).to(a.dtype)

    def run():
        model.decode(z, return_dict=False)

    return counted(run, timed(run, a.reps, a.warm_up), a.count)


def mini(a):
    """From the start of the process to the picture, then again with everything loaded."""
    from diffusers import ErnieImagePipeline
    from diffusers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    pipe = ErnieImagePipeline.from_pretrained(a.model, torch_dtype=a.dtype)
    pipe.set_progress_bar_config(disable=True)

    def run():
        image = pipe("a red apple on green grass under a blue sky", height=128, width=128, num_inference_steps=20,
                     guidance_scale=4.0, generator=torch.Generator().manual_seed(42), use_pe=False).images[0]
        image.save(a.out)

    run()
    first = time.time()  # the driver knows when it started this process
    return {**timed(run, a.reps, a.warm_up), "first_picture_at": first}


def load(a):
    """from_pretrained, then every stored byte read once, as the first pass does."""
    from diffusers import ErnieImageTransformer2DModel

    def run():
        model = ErnieImageTransformer2DModel.from_pretrained(a.model, torch_dtype=a.dtype)
        for p in model.parameters():
            p.data.view(torch.int16 if a.dtype == torch.bfloat16 else torch.int32).flatten()[::32].sum()

    return timed(run, a.reps, a.warm_up)


def save(a):
    """Writes the checkpoint of the load case; nothing is measured."""
    from diffusers import ErnieImageTransformer2DModel

    random_model(lambda: ErnieImageTransformer2DModel(
        hidden_size=4096, num_attention_heads=32, num_layers=a.layers, ffn_hidden_size=12288, in_channels=128, out_channels=128,
        patch_size=1, text_in_dim=3072, rope_theta=256, rope_axes_dim=(32, 48, 48), eps=1e-6, qk_layernorm=True),
        a.dtype).save_pretrained(a.model)
    return {}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("case", choices=["denoiser", "z_image", "text", "enhancer", "vae", "mini", "load", "save"])
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--size", type=int, default=512)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--new-tokens", type=int, default=32)
    p.add_argument("--model")
    p.add_argument("--out")
    p.add_argument("--count", action="store_true")
    p.add_argument("--no-warm-up", dest="warm_up", action="store_false")
    a = p.parse_args()
    a.dtype = torch.float32 if a.dtype == "f32" else torch.bfloat16
    torch.set_num_threads(a.threads)
    with torch.inference_mode():
        result = globals()[a.case](a)
    result["torch"] = torch.__version__
    print(json.dumps(result))


if __name__ == "__main__":
    main()
