#include "convert/file.h"

#include <chrono>
#include <cmath>
#include <map>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/kinds.h"

namespace danqing::app {
namespace {

using Format = TensorSource::Format;

// llama.cpp's numbering of what a file mostly holds; other programs show it.
uint32_t file_type(DType t) {
  static const std::map<DType, uint32_t> numbers = {
      {DType::f32, 0},   {DType::f16, 1},   {DType::q4_0, 2},    {DType::q4_1, 3},    {DType::q8_0, 7},
      {DType::q5_0, 8},  {DType::q5_1, 9},  {DType::q2_k, 10},   {DType::q3_k, 12},   {DType::q4_k, 15},
      {DType::q5_k, 17}, {DType::q6_k, 18}, {DType::iq4_nl, 25}, {DType::iq4_xs, 30}, {DType::bf16, 32}};
  const auto it = numbers.find(t);
  return it == numbers.end() ? 1024 : it->second;  // guessed from the tensors
}

std::string layer_of(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }

class Job {
 public:
  Job(const TensorSource& source, const ConvertSettings& s, TensorWriter* writer)
      : source_(source), s_(s), writer_(writer) {}

  Result<void> run(const std::vector<PlannedTensor>& plan) {
    for (const PlannedTensor& p : plan) total_ += p.stored->bytes;
    for (const PlannedTensor& p : plan) {
      Json line = describe(p);
      if (writer_) {
        const auto done = write(p, line);
        if (!done && done.error().code == ErrorCode::bad_input)
          return bad_input("[convert] {}: tensor '{}': {}; keep it with --tensor-type '{}=keep'",
                           source_.path().string(), one_line(p.stored->name), done.error().message,
                           one_line(p.stored->name));
        DQ_CHECK(done);
      }
      tensors_.push_back(std::move(line));
    }
    return {};
  }

  void report(Json& out) const {
    out["tensors"] = tensors_;
    if (!s_.check || !writer_) return;
    out["rel_l2"] = all_.rel_l2();
    out["worst"] = worst_;
  }

 private:
  Json describe(const PlannedTensor& p) const {
    Json line = {{"name", p.stored->name},
                 {"from", std::string(name(p.stored->dtype))},
                 {"type", std::string(name(p.dtype))},
                 {"shape", p.stored->shape},
                 {"bytes", *tensor_bytes(p.dtype, p.stored->shape)}};
    if (!p.reason.empty()) line["reason"] = std::string(p.reason);
    return line;
  }

  Result<void> report_progress(uint64_t of_this, const std::string& tensor) {
    if (s_.progress && !s_.progress(done_ + of_this, total_, tensor))
      return fail(ErrorCode::cancelled, "[convert] cancelled");
    return {};
  }

  Result<void> write(const PlannedTensor& p, Json& line) {
    DQ_TRY(const StoredValues values, StoredValues::open(source_, *p.stored));
    ConvertOptions o{.threads = s_.threads};
    if (p.with_scale) {
      DQ_TRY(const float largest, largest_value(values, s_.threads));
      const float top = p.dtype == DType::f8_e4m3 ? 448.0f : 57344.0f;
      if (largest > 0) o.divisor = largest / top;
      if (!(o.divisor > 0)) o.divisor = 1;  // the quotient of the smallest values is 0
    }
    Deviation deviation;
    if (s_.check) o.deviation = &deviation;
    const auto out_bytes = static_cast<double>(*tensor_bytes(p.dtype, p.stored->shape));
    DQ_CHECK(report_progress(0, p.stored->name));
    const auto sink = [&](size_t offset, std::span<const std::byte> piece) -> Result<void> {
      DQ_CHECK(writer_->write(piece));
      const double share = static_cast<double>(offset + piece.size()) / out_bytes;
      return report_progress(static_cast<uint64_t>(share * static_cast<double>(p.stored->bytes)), p.stored->name);
    };
    DQ_CHECK(convert(values, p.dtype, o, sink));
    DQ_CHECK(writer_->next());
    if (p.with_scale) {
      DQ_CHECK(writer_->write(std::as_bytes(std::span(&o.divisor, 1))));
      DQ_CHECK(writer_->next());
    }
    done_ += p.stored->bytes;
    if (!s_.check) return {};
    line["rel_l2"] = deviation.rel_l2();
    line["max_abs"] = deviation.largest;
    all_.error += deviation.error;
    all_.size += deviation.size;
    if (worst_.empty() || deviation.rel_l2() > worst_rel_l2_)
      worst_ = p.stored->name, worst_rel_l2_ = deviation.rel_l2();
    return {};
  }

  const TensorSource& source_;
  const ConvertSettings& s_;
  TensorWriter* writer_;
  Json tensors_ = Json::array();
  uint64_t done_ = 0, total_ = 0;
  Deviation all_;
  std::string worst_;
  double worst_rel_l2_ = 0;
};

}  // namespace

OutputMetadata output_metadata(const TensorSource& source, const std::filesystem::path& out,
                               const std::vector<PlannedTensor>& plan, Format format, DType type) {
  OutputMetadata m;
  if (format == Format::gguf) {
    const auto kind = recognise(source);
    const bool denoiser = kind && kind->role == "transformer";
    // Language models keep transformers' names, which no architecture of llama.cpp has; so none is claimed.
    if (denoiser)
      m["general.architecture"] = std::string(kind->pipeline_class == "ZImagePipeline" ? "lumina2" : "ernie_image");
    m["general.type"] = std::string("model");
    m["general.name"] = out.stem().string();
    m["general.quantization_version"] = uint32_t{2};
    m["general.file_type"] = file_type(type);
    return m;
  }
  m["format"] = std::string("pt");
  Json layers = Json::object();
  for (const PlannedTensor& p : plan)
    if (p.with_scale)
      layers[layer_of(p.stored->name)] = {{"format", p.dtype == DType::f8_e4m3 ? "float8_e4m3fn" : "float8_e5m2"}};
  if (!layers.empty())
    m["_quantization_metadata"] = dump_json({{"format_version", "1.0"}, {"layers", std::move(layers)}});
  return m;
}

std::vector<OutputTensor> output_tensors(const std::vector<PlannedTensor>& plan) {
  std::vector<OutputTensor> out;
  for (const PlannedTensor& p : plan) {
    out.push_back({p.stored->name, p.dtype, p.stored->shape});
    if (p.with_scale) out.push_back({layer_of(p.stored->name) + ".weight_scale", DType::f32, {}});
  }
  return out;
}

Result<Json> convert_file(const TensorSource& source, const std::filesystem::path& out, const ConvertSettings& s,
                          std::vector<bool>& matched) {
  const auto start = std::chrono::steady_clock::now();
  DQ_TRY(const std::vector<PlannedTensor> plan, plan_types(source, s.type, s.rules, s.format, matched));
  if (plan.empty()) return usage_error("[convert] {}: expected tensors to convert, got none", source.path().string());
  uint64_t bytes_in = 0, bytes_out = 0;
  Json types = Json::object();
  for (const PlannedTensor& p : plan) {
    bytes_in += p.stored->bytes;
    const uint64_t bytes = *tensor_bytes(p.dtype, p.stored->shape) + (p.with_scale ? 4 : 0);
    bytes_out += bytes;
    Json& t = types[std::string(name(p.dtype))];
    if (t.is_null()) t = {{"tensors", 0}, {"bytes", 0}};
    t["tensors"] = t["tensors"].get<uint64_t>() + 1;
    t["bytes"] = t["bytes"].get<uint64_t>() + bytes;
  }
  Json report = {{"input", source.path().string()},
                 {"output", out.string()},
                 {"format", s.format == Format::gguf ? "gguf" : "safetensors"},
                 {"bytes_in", bytes_in},
                 {"bytes_out", bytes_out},
                 {"types", std::move(types)}};
  if (s.dry_run) {
    Job job(source, s, nullptr);
    DQ_CHECK(job.run(plan));
    job.report(report);
    return report;
  }
  DQ_TRY(TensorWriter writer, TensorWriter::create(out, s.format, output_tensors(plan),
                                                   output_metadata(source, out, plan, s.format, s.type)));
  Job job(source, s, &writer);
  DQ_CHECK(job.run(plan));
  DQ_CHECK(writer.finish(s.overwrite));
  job.report(report);
  report["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace danqing::app
