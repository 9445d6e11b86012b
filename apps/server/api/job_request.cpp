#include "server/api/job_request.h"

#include "base/units.h"

namespace danqing::server {

void read_enhance_options(Fields& f, EnhanceOptions& o) {
  if (const auto v = f.number("temperature", 0, 100)) o.temperature = static_cast<float>(*v);
  if (const auto v = f.number("top_p", 0, 1)) o.top_p = static_cast<float>(*v);
  if (const auto v = f.integer("top_k", 0, 1000000)) o.top_k = static_cast<int>(*v);
  if (const auto v = f.integer("max_new_tokens", 1, 65536)) o.max_new_tokens = static_cast<int>(*v);
  if (const auto v = f.seed("seed")) o.seed = *v;
}

void read_common(Fields& f, JobSpec& s) {
  GenerateRequest& r = s.request;
  for (const char* key : {"steps", "num_inference_steps"})
    if (const auto v = f.integer(key, 0, 10000)) r.num_inference_steps = static_cast<int>(*v);
  if (const auto v = f.number("guidance_scale", -1000, 1000)) r.guidance_scale = static_cast<float>(*v);
  if (const auto v = f.number("shift", 0.001, 100)) r.shift = static_cast<float>(*v);
  if (const auto v = f.number("cfg_normalization", 0, 1000)) r.cfg_normalization = static_cast<float>(*v);
  if (const auto v = f.number("cfg_truncation", 0, 1)) r.cfg_truncation = static_cast<float>(*v);
  if (const auto v = f.choice("sampler", {"euler", "heun"})) r.sampler = *v;
  if (const auto v = f.choice("noise", {"cpu", "cuda"})) r.cuda_noise = *v == "cuda";
  if (const auto v = f.text("negative_prompt")) r.negative_prompts = {*v};
  if (const auto v = f.seed("seed")) r.seeds = {*v};
  if (const Json* e = f.any("enhance")) {
    if (e->is_boolean())
      r.enhancer = e->get<bool>() ? EnhancerMode::on : EnhancerMode::off;
    else if (*e != "auto")
      f.wrong("enhance", "true, false or \"auto\"");
  }
  if (const auto e = f.object("enhancer")) {
    Fields inner(*e, "enhancer.");
    read_enhance_options(inner, r.enhance);
    if (const auto use = inner.choice("use", {"model", "external"})) s.external_enhancer = *use == "external";
    if (inner.error()) f.refuse(*inner.error());
  }
  if (const auto v = f.text("init_image")) {
    if (!base64_decode(*v, s.init_image) || s.init_image.empty())
      f.refuse({422, "invalid_value", "[request] init_image expected a picture in base64", "init_image"});
  }
  if (const auto v = f.number("strength", 0, 1)) {
    r.strength = *v;
    if (*v == 0) f.wrong("strength", "a number above 0, up to 1");
    if (s.init_image.empty()) f.refuse({422, "invalid_value", "[request] strength needs an init_image", "strength"});
  }
  if (const auto v = f.integer("priority", -10, 10)) s.priority = static_cast<int>(*v);
  if (const auto v = f.number("deadline_seconds", 0.1, 1e6)) s.deadline_seconds = *v;
}

Api<JobSpec> native_spec(Fields& f) {
  JobSpec s;
  GenerateRequest& r = s.request;
  if (const auto v = f.text("prompt")) r.prompts = {*v};
  if (const auto v = f.texts("prompts")) r.prompts = *v;
  if (!f.error() && r.prompts.empty())
    f.refuse({422, "invalid_value", "[request] expected a prompt or prompts", "prompt"});
  read_common(f, s);
  if (const auto v = f.texts("negative_prompts")) r.negative_prompts = *v;
  if (const auto v = f.texts("revised_prompts")) r.revised_prompts = *v;
  if (const auto v = f.text("revised_prompt")) r.revised_prompts = {*v};
  if (const auto v = f.seeds("seeds")) r.seeds = *v;
  if (const auto v = f.text("size"); v && *v != "auto") {
    if (auto size = parse_size(*v))
      std::tie(r.width, r.height) = *size;
    else
      f.wrong("size", "auto or WIDTHxHEIGHT");
  }
  if (const auto v = f.integer("width", 1, 65536)) r.width = static_cast<int>(*v);
  if (const auto v = f.integer("height", 1, 65536)) r.height = static_cast<int>(*v);
  for (const char* key : {"n", "images_per_prompt"})
    if (const auto v = f.integer(key, 1, 4096)) r.images_per_prompt = static_cast<int>(*v);
  if (const auto v = f.integer("batch_size", 0, 64)) r.batch_size = static_cast<int>(*v);
  if (const auto v = f.boolean("single_generator")) r.one_stream = *v;
  if (const auto v = f.text("model")) s.model = *v;
  if (const auto v = f.choice("output_format", {"png", "jpeg", "webp"}))
    s.output.format = *v == "jpeg" ? ImageFormat::jpeg : *v == "webp" ? ImageFormat::webp : ImageFormat::png;
  if (const auto v = f.integer("output_compression", 1, 100)) s.output.quality = static_cast<int>(*v);
  if (f.error()) return *f.error();
  return s;
}

}  // namespace danqing::server
