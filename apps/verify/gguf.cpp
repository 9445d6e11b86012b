// Quantised files: decoded rows, the transformer computed with them, and raw blocks of every type.
#include <algorithm>

#include "base/try.h"
#include "device/dequantize.h"
#include "models/ernie_image/transformer.h"
#include "pipeline/family.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

namespace fs = std::filesystem;

/// The tensor of that name, or the only one whose name ends with it (files in the wild put prefixes before names).
const TensorInfo* find_tensor(const TensorSource& source, const std::string& name) {
  if (const TensorInfo* t = source.find(name)) return t;
  const TensorInfo* found = nullptr;
  for (const TensorInfo& t : source.tensors())
    if (t.name.ends_with("." + name)) {
      if (found) return nullptr;
      found = &t;
    }
  return found;
}

Result<Tensor> first_rows(const TensorSource& source, const std::string& name, int64_t rows) {
  const TensorInfo* t = find_tensor(source, name);
  if (!t) return bad_input("[verify] {}: expected the tensor '{}', got none", source.path().string(), name);
  if (t->shape.size() != 2 || rows < 1 || rows > t->shape[0])
    return bad_input("[verify] {}: '{}' expected a matrix of at least {} rows, got {}", source.path().string(), name,
                     rows, to_string(t->shape));
  const auto bytes = source.bytes(*t).first(
      static_cast<size_t>(t->bytes / static_cast<uint64_t>(t->shape[0]) * static_cast<uint64_t>(rows)));
  Tensor out(Shape{rows, t->shape[1]});
  DQ_CHECK(dequantize(t->dtype, bytes, out.data));
  return out;
}

/// "square" of "... on the inputs of case 'square' of dit_f32; ...".
std::string case_of(const Json& sidecar) {
  const auto how = sidecar.find("how");
  if (how == sidecar.end() || !how->is_string()) return "";
  const std::string text = how->get<std::string>();
  const size_t from = text.find("case '"), to = from == std::string::npos ? from : text.find('\'', from + 6);
  return to == std::string::npos ? "" : text.substr(from + 6, to - from - 6);
}

std::string text_member(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

/// The output of the model's transformer with this file's weights, on the inputs of dit_f32.
Result<void> check_output(const Model& m, const std::string& name, const fs::path& file, Golden& g,
                          const std::string& key, Checker& c) {
  const auto dit = m.golden("dit_f32");
  DQ_TRY(const TransformerInputs in, transformer_inputs(*dit, name));
  ModelPaths paths = m.paths(false);
  paths.transformer = file;
  DQ_TRY(const Checkpoint checkpoint, open_checkpoint(paths));
  const ComponentFiles* files = checkpoint.find("transformer");
  if (!files) return bad_input("[verify] {}: expected a transformer", file.string());
  DQ_TRY(const auto transformer,
         ernie_image::Transformer::load(m.suite.device, *files, weight_policy(*files, ComputeType::f32)));
  DQ_TRY(const Tensor got, transformer->forward(in.latents, in.text, in.timesteps));
  c.compare(key, g, key, got, f32_tolerance(page::kTransformer, f32_spread(dit->json(), name), m.suite.factors.matmul));
  return {};
}

void add_files(Suite& suite, const fs::path& directory, const std::shared_ptr<Golden>& g) {
  const auto files = g->json().find("files");
  const std::string model_name = text_member(g->json(), "model"), case_name = case_of(g->json());
  std::vector<fs::path> places{suite.options.tree / model_name, directory / ".." / ".." / model_name};
  for (const std::string& type : g->names("", ".out")) {
    const std::string out = type + ".out", rows = type + ".rows4.";
    std::vector<std::string> row_keys = g->keys_with(rows), all = row_keys;
    all.push_back(out);
    std::string file_name = model_name + "-" + type + ".gguf";
    if (files != g->json().end() && files->is_object() && files->contains(type) && (*files)[type].is_object())
      if (const std::string said = text_member((*files)[type], "file"); !said.empty()) file_name = said;
    const fs::path file = directory / fs::path(file_name).filename();
    std::error_code ec;
    if (!fs::exists(file, ec)) {
      suite.skip(g->label(), type, g, all, file_name + " is not in this tree");
      continue;
    }
    if (!row_keys.empty())
      suite.add(g->label(), type + " rows", g, row_keys, [g, type, rows, row_keys, file](Checker& c) -> Result<void> {
        DQ_TRY(const auto source, TensorSource::open(file));
        for (const std::string& key : row_keys) {
          DQ_TRY(const Tensor expected, g->tensor(key, 2));
          DQ_TRY(const Tensor got, first_rows(*source, key.substr(rows.size()), expected.size(0)));
          c.compare(type + " rows", *g, key, got, {Measure::f32_ulp, 1, 1, "page: exact (1 ulp of f32)"});
        }
        return {};
      });
    const auto place = std::find_if(places.begin(), places.end(),
                                    [&](const fs::path& p) { return fs::exists(p / "model_index.json", ec); });
    if (model_name.empty() || case_name.empty() || place == places.end()) {
      suite.skip(g->label(), out, g, {out},
                 fmt::format("the model '{}' whose transformer this is, is not in this tree", model_name));
      continue;
    }
    suite.add(g->label(), out, g, {out}, [m = Model{suite, *place}, case_name, file, g, out](Checker& c) {
      return check_output(m, case_name, file, *g, out, c);
    });
  }
}

void add_blocks(Suite& suite, const std::shared_ptr<Golden>& g) {
  for (const std::string& type : g->names("", ".raw")) {
    const std::string raw = type + ".raw", values = type + ".values";
    const auto dtype = dtype_from_name(type);
    if (!dtype) {
      suite.skip(g->label(), type, g, {raw, values}, "this build has no block type of this name");
      continue;
    }
    suite.add(g->label(), type, g, {raw, values}, [g, type, raw, values, dtype](Checker& c) -> Result<void> {
      DQ_TRY(const std::vector<int64_t> numbers, g->integers(raw));
      DQ_TRY(const Tensor expected, g->tensor(values));
      std::vector<std::byte> bytes;
      for (const int64_t n : numbers) bytes.push_back(static_cast<std::byte>(n));
      Tensor got(expected.shape);
      DQ_CHECK(dequantize(*dtype, bytes, got.data));
      c.compare(type, *g, values, got, {Measure::f32_ulp, 1, 1, "exact, or 1 ulp of f32"});
      return {};
    });
  }
}

}  // namespace

void add_gguf(Suite& suite, const fs::path& directory) {
  std::error_code ec;
  std::vector<std::string> named;
  if (fs::exists(directory / "gguf.safetensors", ec) || fs::exists(directory / "gguf.json", ec)) {
    const auto g = suite.golden(directory / "gguf");
    add_files(suite, directory, g);
    if (g->json().contains("files") && g->json()["files"].is_object())
      for (const auto& [type, info] : g->json()["files"].items()) named.push_back(text_member(info, "file"));
  }
  if (fs::exists(directory / "blocks.safetensors", ec) || fs::exists(directory / "blocks.json", ec))
    add_blocks(suite, suite.golden(directory / "blocks"));
  for (const auto& entry : fs::directory_iterator(directory, ec))
    if (entry.path().extension() == ".gguf" &&
        std::find(named.begin(), named.end(), entry.path().filename()) == named.end())
      suite.skip(suite.label(directory), entry.path().filename().string(), nullptr, {},
                 "gguf.safetensors has no values for it");
}

}  // namespace danqing::app::verify
