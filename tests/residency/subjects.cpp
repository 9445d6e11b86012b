#include "residency/subjects.h"

#include <fmt/format.h>

#include <numeric>
#include <random>

#include "base/try.h"
#include "checkpoint/tensor_writer.h"
#include "device/dequantize.h"
#include "models/ernie_image/transformer.h"
#include "models/mistral3/model.h"
#include "models/qwen3/qwen3.h"
#include "models/vae/vae.h"
#include "models/z_image/transformer.h"

namespace danqing::testing {
namespace {

std::vector<float> numbers(std::mt19937& random, int64_t n, float spread, float middle = 0) {
  std::normal_distribution<float> normal(middle, spread);
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = normal(random);
  return v;
}
Tensor noise(unsigned seed, const Shape& shape) {
  std::mt19937 random(seed);
  Tensor t(shape);
  t.data = numbers(random, element_count(shape), 1);
  return t;
}

DType dtype_of(const TensorSpec& s, Stored stored) {
  if (s.use != WeightUse::matrix) return DType::bf16;
  switch (stored) {
    case Stored::f32: return DType::f32;
    case Stored::bf16: return DType::bf16;
    case Stored::q8_0: return s.shape.back() % 32 == 0 ? DType::q8_0 : DType::bf16;
    default: return DType::f8_e4m3;
  }
}

ComponentFiles write_files(const std::filesystem::path& dir, const std::vector<TensorSpec>& specs, const Json& config,
                           Stored stored, const char* role) {
  const bool gguf = stored == Stored::q8_0;
  std::vector<OutputTensor> tensors;
  for (const TensorSpec& s : specs) {
    tensors.push_back({s.name, dtype_of(s, stored), s.shape});
    if (stored == Stored::scaled_f8 && s.use == WeightUse::matrix && s.name.ends_with(".weight"))
      tensors.push_back({s.name + "_scale", DType::f32, {1}});
  }
  const std::filesystem::path path = dir / (gguf ? "model.gguf" : "model.safetensors");
  auto writer =
      TensorWriter::create(path, gguf ? TensorSource::Format::gguf : TensorSource::Format::safetensors, tensors, {});
  EXPECT_TRUE(writer.ok()) << (writer.ok() ? "" : writer.error().message);
  std::mt19937 random(7);
  for (const OutputTensor& t : tensors) {
    const bool scale = t.name.ends_with("_scale"), norm = t.shape.size() == 1 && t.name.find("norm") != t.name.npos;
    const bool bias = t.name.ends_with("bias");
    const std::vector<float> values = scale           ? std::vector<float>{0.125f}
                                      : norm && !bias ? numbers(random, element_count(t.shape), 0.1f, 1)
                                                      : numbers(random, element_count(t.shape), 0.1f);
    std::vector<std::byte> bytes(*tensor_bytes(t.dtype, t.shape));
    EXPECT_TRUE(quantize(t.dtype, values, t.shape.empty() ? 1 : t.shape.back(), bytes).ok()) << t.name;
    EXPECT_TRUE(writer->write(bytes).ok() && writer->next().ok());
  }
  EXPECT_TRUE(writer->finish(true).ok());
  ComponentFiles files{.role = role, .path = dir};
  auto source = TensorSource::open(path);
  EXPECT_TRUE(source.ok()) << (source.ok() ? "" : source.error().message);
  if (source.ok()) files.source = *source;
  files.config = config;
  return files;
}

template <class Config>
Config parsed(Result<Config> c) {
  EXPECT_TRUE(c.ok()) << (c.ok() ? "" : c.error().message);
  return c.ok() ? *c : Config();
}

std::vector<int32_t> ids(int64_t n) {
  std::vector<int32_t> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int32_t>((i * 37 + 11) % 320);
  return v;
}

// Two shapes each: another size and another batch.

class Ernie : public Subject {
 public:
  explicit Ernie(std::unique_ptr<ernie_image::Transformer> m) : m_(std::move(m)) {}
  Result<std::vector<float>> run(int shape, const TapSink& taps, const std::function<bool()>& cancelled) override {
    const int64_t batch = shape + 1;
    std::vector<Tensor> text;
    for (int64_t n : lengths(shape)) text.push_back(noise(static_cast<unsigned>(n), {n, 24}));
    DQ_TRY(const Tensor out, m_->forward(noise(1, {batch, 8, 6, 5}), text,
                                         std::vector<float>(static_cast<size_t>(batch), 500), taps, cancelled));
    return out.data;
  }
  Result<size_t> measure(int shape) override { return m_->measure(shape + 1, 6, 5, lengths(shape)); }
  const WeightSizes& sizes() const override { return m_->weight_sizes(); }

 private:
  static std::vector<int64_t> lengths(int shape) {
    return shape == 0 ? std::vector<int64_t>{4} : std::vector<int64_t>{4, 7};
  }
  std::unique_ptr<ernie_image::Transformer> m_;
};

class ZImage : public Subject {
 public:
  explicit ZImage(std::unique_ptr<z_image::Transformer> m) : m_(std::move(m)) {}
  Result<std::vector<float>> run(int shape, const TapSink& taps, const std::function<bool()>& cancelled) override {
    std::vector<Tensor> latents, captions;
    for (int64_t n : lengths(shape)) {
      latents.push_back(noise(2, {8, 8, 6}));
      captions.push_back(noise(static_cast<unsigned>(n), {n, 24}));
    }
    DQ_TRY(const std::vector<Tensor> out,
           m_->forward(latents, captions, std::vector<float>(latents.size(), 0.25f), taps, cancelled));
    std::vector<float> all;
    for (const Tensor& t : out) all.insert(all.end(), t.data.begin(), t.data.end());
    return all;
  }
  Result<size_t> measure(int shape) override { return m_->measure(8, 6, lengths(shape)); }
  const WeightSizes& sizes() const override { return m_->weight_sizes(); }

 private:
  static std::vector<int64_t> lengths(int shape) {
    return shape == 0 ? std::vector<int64_t>{5} : std::vector<int64_t>{5, 40};
  }
  std::unique_ptr<z_image::Transformer> m_;
};

class Encoder : public Subject {
 public:
  explicit Encoder(std::unique_ptr<mistral3::TextEncoder> m) : m_(std::move(m)) {}
  Result<std::vector<float>> run(int shape, const TapSink& taps, const std::function<bool()>&) override {
    DQ_TRY(const Tensor out, m_->encode(ids(length(shape)), taps));
    return out.data;
  }
  Result<size_t> measure(int shape) override { return m_->measure(1, length(shape)); }
  const WeightSizes& sizes() const override { return m_->weight_sizes(); }

 private:
  static int64_t length(int shape) { return shape == 0 ? 9 : 20; }
  std::unique_ptr<mistral3::TextEncoder> m_;
};

class Language : public Subject {
 public:
  explicit Language(std::unique_ptr<mistral3::CausalLM> m) : m_(std::move(m)) {}
  Result<std::vector<float>> run(int shape, const TapSink&, const std::function<bool()>& cancelled) override {
    DQ_CHECK(m_->reset(length(shape) + 2));
    DQ_TRY(std::vector<float> all, m_->append(ids(length(shape)), cancelled));
    for (int32_t id : {3, 5}) {
      DQ_TRY(const std::vector<float> next, m_->append({&id, 1}, cancelled));
      all.insert(all.end(), next.begin(), next.end());
    }
    return all;
  }
  Result<size_t> measure(int shape) override { return m_->measure(length(shape), length(shape) + 2); }
  const WeightSizes& sizes() const override { return m_->weight_sizes(); }

 private:
  static int64_t length(int shape) { return shape == 0 ? 9 : 254; }  // the second crosses a step of the cache
  std::unique_ptr<mistral3::CausalLM> m_;
};

class Decoder : public Subject {
 public:
  explicit Decoder(std::unique_ptr<vae::Vae> m) : m_(std::move(m)) {}
  Result<std::vector<float>> run(int shape, const TapSink& taps, const std::function<bool()>& cancelled) override {
    DQ_TRY(const Tensor out, m_->decode(noise(3, {1, 4, 3 + shape, 4}), taps, cancelled));
    return out.data;
  }
  Result<size_t> measure(int shape) override { return m_->measure_decode(1, 3 + shape, 4); }
  const WeightSizes& sizes() const override { return m_->weight_sizes(); }

 private:
  std::unique_ptr<vae::Vae> m_;
};

template <class S, class M>
Result<std::unique_ptr<Subject>> wrap(Result<std::unique_ptr<M>> model) {
  if (!model) return model.error();
  return std::unique_ptr<Subject>(std::make_unique<S>(std::move(*model)));
}

Kind ernie() {
  const Json config = {{"hidden_size", 64},
                       {"num_attention_heads", 2},
                       {"num_layers", 6},
                       {"ffn_hidden_size", 96},
                       {"in_channels", 8},
                       {"out_channels", 8},
                       {"patch_size", 1},
                       {"text_in_dim", 24},
                       {"rope_axes_dim", {8, 12, 12}},
                       {"rope_theta", 256},
                       {"eps", 1e-6},
                       {"qk_layernorm", true}};
  return {"ernie_image",
          6,
          true,
          true,
          [config](const std::filesystem::path& dir, Stored stored) {
            const auto c = parsed(ernie_image::Config::parse(config, "test"));
            return write_files(dir, ernie_image::tensor_table(c), config, stored, "transformer");
          },
          [](std::shared_ptr<Device> d, const ComponentFiles& f, const WeightPolicy& p) {
            return wrap<Ernie>(ernie_image::Transformer::load(std::move(d), f, p));
          }};
}

Kind z_image() {
  const Json config = {{"_class_name", "ZImageTransformer2DModel"},
                       {"all_f_patch_size", {1}},
                       {"all_patch_size", {2}},
                       {"axes_dims", {8, 12, 12}},
                       {"axes_lens", {256, 64, 64}},
                       {"cap_feat_dim", 24},
                       {"dim", 96},
                       {"in_channels", 8},
                       {"n_heads", 3},
                       {"n_kv_heads", 3},
                       {"n_layers", 5},
                       {"n_refiner_layers", 2},
                       {"norm_eps", 1e-5},
                       {"qk_norm", true},
                       {"rope_theta", 256.0},
                       {"t_scale", 1000.0}};
  return {"z_image",
          9,
          true,
          true,
          [config](const std::filesystem::path& dir, Stored stored) {
            const auto c = parsed(z_image::Config::parse(config, "test"));
            return write_files(dir, z_image::tensor_table(c, false), config, stored, "transformer");
          },
          [](std::shared_ptr<Device> d, const ComponentFiles& f, const WeightPolicy& p) {
            return wrap<ZImage>(z_image::Transformer::load(std::move(d), f, p));
          }};
}

Json text_config(const char* fixture, int64_t layers) {
  auto read = read_json(data(fixture));
  EXPECT_TRUE(read.ok());
  if (!read.ok()) return {};
  Json config = *read;
  Json& c = config.contains("text_config") ? config["text_config"] : config;
  for (const auto& [key, value] :
       {std::pair("num_hidden_layers", layers), std::pair<const char*, int64_t>("vocab_size", 320),
        std::pair<const char*, int64_t>("hidden_size", 64), std::pair<const char*, int64_t>("head_dim", 32),
        std::pair<const char*, int64_t>("intermediate_size", 96)})
    c[key] = value;
  if (c.contains("layer_types"))
    c["layer_types"] = std::vector<std::string>(static_cast<size_t>(layers), "full_attention");
  return config;
}

/// As the files name them.
std::vector<TensorSpec> prefixed(std::vector<TensorSpec> specs, const std::string& prefix) {
  for (TensorSpec& s : specs) s.name = prefix + s.name;
  return specs;
}

Kind mistral() {
  return {"mistral3",
          5,
          true,
          false,
          [](const std::filesystem::path& dir, Stored stored) {
            const Json config = text_config("fixtures/ernie-tiny/text_encoder/config.json", 6);
            const auto c = parsed(mistral3::Config::parse(config, "test"));
            return write_files(dir, prefixed(mistral3::tensor_table(c, 6, true, false), "language_model.model."),
                               config, stored, "text_encoder");
          },
          [](std::shared_ptr<Device> d, const ComponentFiles& f, const WeightPolicy& p) {
            return wrap<Encoder>(mistral3::TextEncoder::load(std::move(d), f, p));
          }};
}

Kind qwen() {
  return {"qwen3",
          4,
          true,
          false,
          [](const std::filesystem::path& dir, Stored stored) {
            const Json config = text_config("fixtures/zimage-tiny/text_encoder/config.json", 5);
            const auto c = parsed(qwen3::parse_config(config, "test"));
            return write_files(dir, prefixed(mistral3::tensor_table(c, 5, true, false), "model."), config, stored,
                               "text_encoder");
          },
          [](std::shared_ptr<Device> d, const ComponentFiles& f, const WeightPolicy& p) {
            return wrap<Encoder>(qwen3::load_text_encoder(std::move(d), f, p));
          }};
}

Kind language() {
  return {"language_model",
          5,
          false,
          true,
          [](const std::filesystem::path& dir, Stored stored) {
            const Json config = text_config("fixtures/ernie-tiny/pe/config.json", 5);
            const auto c = parsed(mistral3::Config::parse(config, "test"));
            return write_files(dir, prefixed(mistral3::tensor_table(c, 5, true, true), "model."), config, stored, "pe");
          },
          [](std::shared_ptr<Device> d, const ComponentFiles& f, const WeightPolicy& p) {
            return wrap<Language>(mistral3::CausalLM::load(std::move(d), f, p));
          }};
}

Kind decoder() {
  return {"vae",
          0,
          true,
          true,
          [](const std::filesystem::path& dir, Stored stored) {
            auto config = read_json(data("fixtures/zimage-tiny/vae/config.json"));
            EXPECT_TRUE(config.ok());
            Json j = config.ok() ? *config : Json();
            j["latent_channels"] = 4;
            const auto c = parsed(vae::Config::parse(j, "test"));
            return write_files(dir, vae::tensor_table(c, vae::Part::decoder), j, stored, "vae");
          },
          [](std::shared_ptr<Device> d, const ComponentFiles& f, const WeightPolicy& p) {
            return wrap<Decoder>(vae::Vae::load(std::move(d), f, vae::Part::decoder, p));
          }};
}

}  // namespace

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{ernie(), z_image(), mistral(), qwen(), language(), decoder()};
  return all;
}

std::shared_ptr<Device> open_cpu(int threads, CpuKernels kernels) {
  auto device = Device::open("cpu", {.threads = threads, .kernels = kernels});
  EXPECT_TRUE(device.ok()) << (device.ok() ? "" : device.error().message);
  return device.ok() ? *device : nullptr;
}

}  // namespace danqing::testing
