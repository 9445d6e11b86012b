// The machine around the cards: processor, memory, disk, and the model's files.
#include "device/host.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "doctor/check.h"

namespace danqing::doctor {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kSpare = 15'000'000'000;  // beside the model: conversion, pictures, a second file while it downloads

Check cpu(const Machine& m) {
  Check c{"cpu"};
  const std::string features = host::cpu_features(m.root), name = one_line(host::cpu_name(m.root), 80);
  c.evidence = {name + ": " + (features.empty() ? "no vector extensions named" : features),
                name + "：" + (features.empty() ? "没有列出向量扩展" : features)};
  if (features.find("AVX2") == std::string::npos && features.find("ASIMD") == std::string::npos) {
    c.status = Status::warning;
    c.remedy = {"Without AVX2 the CPU computes with ggml's plain kernels, several times slower; a card is the way.",
                "没有 AVX2，CPU 只能用 ggml 的普通内核，慢几倍；建议使用显卡。"};
  }
  return c;
}

uint64_t model_bytes(const Machine& m) {
  uint64_t bytes = 0;
  std::error_code ec;
  if (m.model.empty()) return 0;
  if (fs::is_directory(m.model, ec)) {
    for (fs::recursive_directory_iterator it(m.model, ec), end; !ec && it != end; it.increment(ec)) {
      std::error_code size;
      if (it->is_regular_file(size)) bytes += it->file_size(size);
    }
  } else if (fs::is_regular_file(m.model, ec)) {
    bytes = fs::file_size(m.model, ec);
  }
  return bytes;
}

Check memory(const Machine& m, uint64_t model) {
  Check c{"memory"};
  const host::Memory all = host::memory(m.root);
  if (all.total == 0) return c.status = Status::skipped, c.evidence = {"not known", "未知"}, c;
  const std::string limit = m.host.memory_limit ? format_bytes(*m.host.memory_limit) : "";
  c.evidence = {fmt::format("{} available of {}{}", format_bytes(all.available), format_bytes(all.total),
                            limit.empty() ? "" : " (the control group's limit)"),
                fmt::format("可用 {}，共 {}{}", format_bytes(all.available), format_bytes(all.total),
                            limit.empty() ? "" : "（控制组上限）")};
  const uint64_t need = std::max(model, 2 * kGiB);
  if (all.available < need) {
    c.status = Status::warning;
    c.remedy = {
        fmt::format("Less than {}: {}. A quantised model needs a half or a quarter (danqing convert); a "
                    "container's limit: --memory, systemd: MemoryMax=.",
                    format_bytes(need), model > 2 * kGiB ? "the model's files" : "little for any model"),
        fmt::format("不足 {}。量化模型只需一半或四分之一（danqing convert）；容器上限：--memory，systemd：MemoryMax=。",
                    format_bytes(need))};
  }
  return c;
}

Check disk(const Machine& m, uint64_t model) {
  Check c{"disk"};
  std::error_code ec;
  const fs::space_info space = fs::space(m.work, ec);
  if (ec) return c.status = Status::skipped, c.evidence = {"not known", "未知"}, c;
  const uint64_t need = model + kSpare;
  c.evidence = {fmt::format("{} free in {}; {} are asked for{}", format_bytes(space.available),
                            one_line(m.work.string(), 80), format_bytes(need), model ? " (the model and 15 GB)" : ""),
                fmt::format("{} 可用空间 {}；建议 {}{}", one_line(m.work.string(), 80), format_bytes(space.available),
                            format_bytes(need), model ? "（模型加 15 GB）" : "")};
  if (space.available < need) {
    c.status = Status::warning;
    c.remedy = {
        "A second copy of the model (danqing convert, a download) will not fit. du -xsh * | sort -h shows what is "
        "large.",
        "放不下模型的第二份拷贝（danqing convert、下载）。du -xsh * | sort -h 查看大文件。"};
  }
  return c;
}

Check model(const Machine& m, const Result<Checkpoint>& checkpoint) {
  Check c{"model"};
  if (m.model.empty()) {
    c.status = Status::skipped;
    c.evidence = {"none named (--model DIR)", "未指定（--model 目录）"};
    return c;
  }
  if (!checkpoint) {
    c.status = Status::failed;
    c.evidence = {checkpoint.error().message, checkpoint.error().message};
    c.remedy = {
        "Download the named file again and compare its size and SHA-256 with the hub's; danqing inspect DIR lists what "
        "is there.",
        "重新下载所说的文件，核对大小和 SHA-256；danqing inspect 目录 可列出现有内容。"};
    return c;
  }
  std::string parts;
  for (const auto& [role, files] : checkpoint->components) parts += (parts.empty() ? "" : ", ") + role;
  std::string lacking;
  for (const char* role : {"transformer", "text_encoder", "vae"})
    if (!checkpoint->find(role)) lacking += (lacking.empty() ? "" : ", ") + std::string(role);
  if (checkpoint->tokenizer.empty()) lacking += lacking.empty() ? "tokenizer" : ", tokenizer";
  c.evidence = {
      fmt::format("{}: {}", checkpoint->pipeline_class.empty() ? "no pipeline" : checkpoint->pipeline_class, parts),
      fmt::format("{}：{}", checkpoint->pipeline_class.empty() ? "不是流水线" : checkpoint->pipeline_class, parts)};
  if (!lacking.empty()) {
    c.status = Status::failed;
    c.evidence.en += "; missing: " + lacking;
    c.evidence.zh += "；缺少：" + lacking;
    c.remedy = {"Download the whole directory, or name the parts: --transformer, --text-encoder, --vae, --tokenizer.",
                "下载整个目录，或分别指定：--transformer、--text-encoder、--vae、--tokenizer。"};
  }
  return c;
}

}  // namespace

std::vector<Check> check_host(const Machine& m) {
  Result<Checkpoint> checkpoint = Checkpoint{};
  if (!m.model.empty()) {
    ModelPaths paths;
    paths.model = m.model;
    checkpoint = open_checkpoint(paths);
  }
  const uint64_t bytes = model_bytes(m);
  return {cpu(m), memory(m, bytes), disk(m, bytes), model(m, checkpoint)};
}

}  // namespace danqing::doctor
