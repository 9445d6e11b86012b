#include "checkpoint/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/kinds.h"

namespace danqing {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 4> kRoles = {"transformer", "text_encoder", "vae", "pe"};

bool present(const fs::path& p) {
  std::error_code ec;
  return fs::exists(p, ec);
}
bool is_folder(const fs::path& p) {
  std::error_code ec;
  return fs::is_directory(p, ec);
}

Result<std::optional<Json>> optional_json(const fs::path& path) {
  if (!present(path)) return std::optional<Json>();
  DQ_TRY(Json json, read_json(path));
  if (!json.is_object())
    return bad_input("[checkpoint] {}: expected a JSON object, got {}", path.string(), json.type_name());
  return std::optional<Json>(std::move(json));
}

// Text encoder and prompt enhancer may be the same kind of model.
bool fits(std::string_view role, std::string_view kind_role) {
  const auto language = [](std::string_view r) { return r == "text_encoder" || r == "pe"; };
  return role == kind_role || (language(role) && language(kind_role));
}

// Any tensor file or component directory, whose role is not known yet.
Result<ComponentFiles> open_component(const fs::path& path) {
  ComponentFiles c{.path = path};
  const fs::path directory = is_folder(path) ? path : path.parent_path();
  DQ_TRY(c.source, TensorSource::open(path));
  DQ_TRY(c.config, optional_json(directory / "config.json"));
  DQ_TRY(c.generation_config, optional_json(directory / "generation_config.json"));
  if (c.config) c.class_name = class_of_config(*c.config);
  // A config beside a bare file counts only when it is about the same kind of component.
  if (c.config && directory != path) {
    const auto by_class = kind_of_class(c.class_name), by_names = recognise(*c.source);
    if (!by_class || !by_names || by_class->role != by_names->role) {
      c.config.reset();
      c.generation_config.reset();
      c.class_name.clear();
    }
  }
  return c;
}

Result<ComponentFiles> open_as(const std::string& role, const fs::path& path) {
  if (is_folder(path) && present(path / "model_index.json"))
    return bad_input("[checkpoint] {}: expected the {} alone, got a whole pipeline; give {}", path.string(), role,
                     (path / role).string());
  DQ_TRY(ComponentFiles c, open_component(path));
  c.role = role;
  const auto kinds = recognise_all(*c.source);
  bool any = kinds.empty();  // unknown names: the model's own table will tell what is missing
  for (const TensorKind& k : kinds) any |= fits(role, k.role);
  if (!any) return bad_input("[checkpoint] {}: expected a {}, got {}", path.string(), role, kinds[0].description);
  return c;
}

// The entry of a component in model_index.json: [library, class]; both null mean absent.
Result<std::optional<std::string>> listed_class(const Json& index, const std::string& key, const std::string& where) {
  const auto it = index.find(key);
  if (it == index.end() || it->is_null()) return std::optional<std::string>();
  if (it->is_array() && it->size() == 2) {
    if (it->at(1).is_null()) return std::optional<std::string>();
    if (it->at(1).is_string()) return std::optional<std::string>(it->at(1).get<std::string>());
  }
  return bad_input("[checkpoint] {}: component '{}' expected [library, class] or nulls, got {}", where, key,
                   one_line(dump_json(*it), 60));
}

Error component_missing(const fs::path& index, const std::string& key, const std::string& class_name) {
  return bad_input("[checkpoint] {}: lists the component '{}' ({}), expected the folder {}, got none; download it",
                   index.string(), key, one_line(class_name, 60), (index.parent_path() / key).string());
}

const fs::path& given(const ModelPaths& paths, std::string_view role) {
  if (role == "transformer") return paths.transformer;
  if (role == "text_encoder") return paths.text_encoder;
  return role == "vae" ? paths.vae : paths.pe;
}

Result<void> open_pipeline(const ModelPaths& paths, Checkpoint& out) {
  const fs::path index_path = out.root / "model_index.json";
  const std::string where = index_path.string();
  DQ_TRY(const Json index, read_json(index_path));
  DQ_TRY(const JsonObject top, JsonObject::of(index, where));
  DQ_TRY(out.pipeline_class, top.string("_class_name"));
  const auto& known = known_pipelines();
  if (std::find(known.begin(), known.end(), out.pipeline_class) == known.end())
    return bad_input("[checkpoint] {}: expected a pipeline class out of {}, got {}", where, fmt::join(known, ", "),
                     one_line(out.pipeline_class));
  for (const std::string role : kRoles) {
    DQ_TRY(const auto class_name, listed_class(index, role, where));
    if (!class_name) continue;
    const fs::path directory = out.root / role;
    if (!present(directory)) {
      // The enhancer is an extra of the reference pipeline too: people leave its 6 GiB out.
      if (!given(paths, role).empty() || role == "pe") continue;
      return component_missing(index_path, role, *class_name);
    }
    // An overridden component is still looked at for its config: the given file may have none.
    if (!given(paths, role).empty()) {
      ComponentFiles c{.role = role, .class_name = *class_name, .path = directory};
      DQ_TRY(c.config, optional_json(directory / "config.json"));
      DQ_TRY(c.generation_config, optional_json(directory / "generation_config.json"));
      out.components[role] = std::move(c);
      continue;
    }
    DQ_TRY(ComponentFiles c, open_as(role, directory));
    c.class_name = *class_name;
    out.components[role] = std::move(c);
  }
  struct Folder {
    const char* key;
    const fs::path& given;
    fs::path& target;
  };
  for (const Folder& f : {Folder{"tokenizer", paths.tokenizer, out.tokenizer},
                          Folder{"pe_tokenizer", paths.pe_tokenizer, out.pe_tokenizer}}) {
    DQ_TRY(const auto class_name, listed_class(index, f.key, where));
    if (!class_name || !f.given.empty()) continue;
    if (present(out.root / f.key))
      f.target = out.root / f.key;
    else if (f.key != std::string_view("pe_tokenizer"))
      return component_missing(index_path, f.key, *class_name);
  }
  DQ_TRY(const auto scheduler, listed_class(index, "scheduler", where));
  if (scheduler && paths.scheduler.empty()) {
    const fs::path config = out.root / "scheduler/scheduler_config.json";
    if (!present(config)) return component_missing(index_path, "scheduler", *scheduler);
    DQ_TRY(out.scheduler, optional_json(config));
  }
  return {};
}

// One file or component directory; a single-file checkpoint serves several roles.
Result<void> open_single(Checkpoint& out) {
  DQ_TRY(ComponentFiles c, open_component(out.root));
  const auto kinds = recognise_all(*c.source);
  if (kinds.empty() && c.class_name.empty())
    return bad_input("[checkpoint] {}: expected a model, got tensors of no kind known here (the first is '{}')",
                     out.root.string(), c.source->tensors().empty() ? "" : one_line(c.source->tensors()[0].name));
  if (!kinds.empty() && kinds[0].role == "lora")
    return bad_input("[checkpoint] {}: expected a model, got a LoRA adapter; it is used beside a model",
                     out.root.string());
  const auto by_class = kind_of_class(c.class_name);
  if (kinds.size() <= 1 && by_class) {
    c.role = by_class->role;
    out.pipeline_class = by_class->pipeline_class;
    out.components[c.role] = std::move(c);
    return {};
  }
  if (kinds.empty())
    return bad_input("[checkpoint] {}: expected a model class known here, got {}", out.root.string(),
                     one_line(c.class_name));
  for (const TensorKind& k : kinds) {
    if (out.pipeline_class.empty()) out.pipeline_class = k.pipeline_class;
    c.role = k.role;
    out.components[k.role] = c;
  }
  return {};
}

Result<void> apply_given_parts(const ModelPaths& paths, Checkpoint& out) {
  for (const std::string role : kRoles) {
    const fs::path& path = given(paths, role);
    if (path.empty()) continue;
    DQ_TRY(ComponentFiles c, open_as(role, path));
    // A bare file of the same model keeps the directory's config.
    if (const auto base = out.components.find(role); base != out.components.end() && !c.config) {
      c.config = base->second.config;
      c.generation_config = base->second.generation_config;
      c.class_name = base->second.class_name;
    }
    out.components[role] = std::move(c);
  }
  struct Folder {
    const fs::path& given;
    fs::path& target;
  };
  for (const Folder& f : {Folder{paths.tokenizer, out.tokenizer}, Folder{paths.pe_tokenizer, out.pe_tokenizer}}) {
    if (f.given.empty()) continue;
    if (!present(f.given))
      return bad_input("[checkpoint] {}: expected a tokenizer, got no such file or directory", f.given.string());
    f.target = f.given;
  }
  if (!paths.scheduler.empty()) {
    const fs::path file = is_folder(paths.scheduler) ? paths.scheduler / "scheduler_config.json" : paths.scheduler;
    if (!present(file)) return bad_input("[checkpoint] {}: expected a scheduler_config.json, got none", file.string());
    DQ_TRY(out.scheduler, optional_json(file));
  }
  return {};
}

// Whose pipeline it is, when no model_index.json says so: the transformer decides, else any part that only one uses.
std::string pipeline_of(const Checkpoint& checkpoint) {
  for (const std::string role : kRoles) {
    const ComponentFiles* c = checkpoint.find(role);
    if (!c) continue;
    auto kind = kind_of_class(c->class_name);
    if (!kind) kind = recognise(*c->source);
    if (kind && !kind->pipeline_class.empty()) return kind->pipeline_class;
  }
  return "";
}

}  // namespace

const ComponentFiles* Checkpoint::find(std::string_view role) const {
  const auto it = components.find(std::string(role));
  return it == components.end() ? nullptr : &it->second;
}

Result<Checkpoint> open_checkpoint(const ModelPaths& paths) {
  Checkpoint out;
  out.root = paths.model;
  if (!paths.model.empty()) {
    if (!present(paths.model)) return bad_input("[checkpoint] {}: no such file or directory", paths.model.string());
    if (paths.model.filename() == "model_index.json") out.root = paths.model.parent_path();
    if (present(out.root / "model_index.json")) {
      DQ_CHECK(open_pipeline(paths, out));
    } else if (is_folder(out.root) && is_folder(out.root / "transformer")) {
      return bad_input(
          "[checkpoint] {}: expected a model_index.json beside the component folders, got none; download it",
          out.root.string());
    } else {
      DQ_CHECK(open_single(out));
    }
  }
  DQ_CHECK(apply_given_parts(paths, out));
  if (out.components.empty())
    return usage_error("[checkpoint] expected a model directory or file, or its parts, got none");
  if (out.pipeline_class.empty()) out.pipeline_class = pipeline_of(out);
  for (const ModelPaths::Adapter& a : paths.adapters) {
    const auto transformer = out.components.find("transformer");
    if (transformer == out.components.end())
      return usage_error("[lora] {}: expected a model with a transformer, got none", a.file.string());
    DQ_TRY(std::shared_ptr<const Adapter> adapter, Adapter::open(a.file));
    transformer->second.adapters.push_back({std::move(adapter), a.weight});
  }
  return out;
}

}  // namespace danqing
