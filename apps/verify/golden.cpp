#include "verify/golden.h"

#include <set>

#include "base/try.h"

namespace danqing::app::verify {

namespace fs = std::filesystem;

std::shared_ptr<Golden> Golden::open(const fs::path& stem, std::string label) {
  auto g = std::make_shared<Golden>();
  g->label_ = std::move(label);
  fs::path tensors = stem, sidecar = stem;  // names hold dots, so no replace_extension
  tensors += ".safetensors";
  sidecar += ".json";
  std::error_code ec;
  if (fs::exists(sidecar, ec)) {
    auto json = read_json(sidecar);
    if (!json)
      g->error_ = json.error();
    else if (!json->is_object())
      g->error_ = bad_input("[verify] {}: expected a JSON object, got {}", sidecar.string(), json->type_name());
    else
      g->json_ = std::move(*json);
  }
  auto source = TensorSource::open(tensors);
  if (!source) {
    g->error_ = source.error();
    return g;
  }
  g->source_ = std::move(*source);
  for (const TensorInfo& t : g->source_->tensors()) g->marks_.emplace(t.name, Mark::none);
  return g;
}

std::shared_ptr<Golden> Golden::of_entries(std::string label, const std::vector<std::string>& entries) {
  auto g = std::make_shared<Golden>();
  g->label_ = std::move(label);
  for (const std::string& e : entries) g->marks_.emplace(e, Mark::none);
  return g;
}

std::vector<std::string> Golden::keys() const {
  std::vector<std::string> out;
  for (const auto& [key, mark] : marks_) out.push_back(key);
  return out;
}

std::vector<std::string> Golden::names(std::string_view prefix, std::string_view suffix) const {
  std::set<std::string> found;
  for (const auto& [key, mark] : marks_)
    if (key.size() > prefix.size() + suffix.size() && key.starts_with(prefix) && key.ends_with(suffix))
      found.insert(key.substr(prefix.size(), key.size() - prefix.size() - suffix.size()));
  return {found.begin(), found.end()};
}

std::vector<std::string> Golden::keys_with(std::string_view prefix) const {
  std::vector<std::string> out;
  for (const auto& [key, mark] : marks_)
    if (key.starts_with(prefix)) out.push_back(key);
  return out;
}

Result<Tensor> Golden::tensor(const std::string& key) {
  if (error_) return *error_;
  if (!source_ || !source_->find(key)) return bad_input("[verify] {}: the golden '{}' is missing", label_, key);
  DQ_TRY(Tensor t, read_f32(*source_, key));
  mark(key, Mark::input);
  return t;
}

Result<Tensor> Golden::tensor(const std::string& key, size_t rank) {
  DQ_TRY(Tensor t, tensor(key));
  if (t.shape.size() != rank || t.count() == 0)
    return bad_input("[verify] {}: golden '{}' expected {} axes and values in it, got {}", label_, key, rank,
                     to_string(t.shape));
  return t;
}

Result<std::vector<int64_t>> Golden::integers(const std::string& key) {
  if (error_) return *error_;
  if (!source_ || !source_->find(key)) return bad_input("[verify] {}: the golden '{}' is missing", label_, key);
  DQ_TRY(std::vector<int64_t> v, read_integers(*source_, key));
  mark(key, Mark::input);
  return v;
}

std::optional<DType> Golden::dtype(const std::string& key) const {
  const TensorInfo* t = source_ ? source_->find(key) : nullptr;
  return t ? std::optional(t->dtype) : std::nullopt;
}

void Golden::mark(const std::string& key, Mark m) {
  const auto it = marks_.find(key);
  if (it != marks_.end() && it->second < m) it->second = m;
}

Mark Golden::mark_of(const std::string& key) const {
  const auto it = marks_.find(key);
  return it == marks_.end() ? Mark::none : it->second;
}

}  // namespace danqing::app::verify
