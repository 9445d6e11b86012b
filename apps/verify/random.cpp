// Numbers that no network makes: random streams, start noise, sigmas.
#include "sampling/random.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "base/try.h"
#include "sampling/flow_match.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

template <class T>
std::optional<T> parse(std::string_view text) {
  T v{};
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (ec != std::errc() || end != text.data() + text.size()) return {};
  return v;
}

/// Seeds may be written negative; torch wraps them.
std::optional<uint64_t> parse_seed_text(std::string_view text) {
  if (text.starts_with("-")) {
    const auto v = parse<int64_t>(text);
    return v ? std::optional(static_cast<uint64_t>(*v)) : std::nullopt;
  }
  return parse<uint64_t>(text);
}

std::vector<std::string> split(const std::string& key) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t dot; (dot = key.find('.', at)) != std::string::npos; at = dot + 1)
    parts.push_back(key.substr(at, dot - at));
  parts.push_back(key.substr(at));
  return parts;
}

Tolerance rand_tolerance(bool bf16) {
  return bf16 ? Tolerance{Measure::bf16_ulp, 1, 1, "page: 1 ulp of bf16"} : Tolerance::exact();
}

/// The known values came from a card, whose fast sine and cosine err by up to 2^-21 (CUDA's programming guide) of the
/// radius, here up to 2.7.
Tolerance card_tolerance() {
  return {Measure::max_abs, 1e-6, 1,
          "1e-06 absolute: made by a card, whose fast sine errs by up to 2^-21 of the radius"};
}

/// A draw of the golden's shape.
template <class Draw>
Result<void> check_draw(Golden& g, const std::string& row, const std::string& key,
                        const std::function<Tolerance(const Tensor& golden)>& tolerance, Checker& c, Draw draw) {
  DQ_TRY(const Tensor expected, g.tensor(key));
  Tensor got(expected.shape);
  draw(std::span(got.data));
  c.compare(row, g, key, got, tolerance(expected));
  return {};
}

std::function<Tolerance(const Tensor&)> noise(bool bf16) {
  return [bf16](const Tensor& golden) { return noise_tolerance(bf16, golden); };
}

/// All streams of one seed and kind: KIND.seedS.REST.
Result<void> check_stream(Golden& g, const std::string& kind, const std::string& seed_text,
                          const std::vector<std::string>& keys, Checker& c) {
  const auto seed = parse_seed_text(seed_text);
  if (!seed) return bad_input("[verify] {}: '{}' is no seed", g.label(), seed_text);
  const std::string row = kind + ".seed" + seed_text;
  CpuGenerator shared(*seed);  // of kinds whose draws follow one another
  if (kind == "two_draws" || kind == "two_draws_bf16") {
    const bool bf16 = kind.ends_with("bf16");
    for (const std::string& key : keys) {
      if (!key.ends_with(".first")) continue;
      CpuGenerator generator(*seed);
      const std::string second = key.substr(0, key.size() - 5) + "second";
      for (const std::string& k : {key, second})
        DQ_CHECK(check_draw(g, row, k, noise(bf16), c, [&](std::span<float> out) {
          generator.randn(out, bf16 ? WorkType::bf16 : WorkType::f32);
        }));
    }
    return {};
  }
  if (kind == "rand_then_randn") {
    DQ_CHECK(check_draw(
        g, row, row + ".rand", [=](const Tensor&) { return rand_tolerance(false); }, c,
        [&](std::span<float> out) { shared.rand(out); }));
    return check_draw(g, row, row + ".randn", noise(false), c, [&](std::span<float> out) { shared.randn(out); });
  }
  if (kind == "multinomial") {
    DQ_TRY(const Tensor p, g.tensor(row + ".probs"));
    DQ_TRY(const std::vector<int64_t> expected, g.integers(row + ".ten_draws_of_one"));
    std::vector<int64_t> got;
    for (size_t i = 0; i < expected.size(); ++i) got.push_back(shared.draw_one(p.data));
    c.same(row, g, row + ".ten_draws_of_one", got);
    return {};
  }
  for (const std::string& key : keys) {
    const std::string rest = split(key).back();
    const bool bf16 = rest == "bf16";
    const WorkType type = bf16 ? WorkType::bf16 : WorkType::f32;
    CpuGenerator generator(*seed);
    if (kind == "mt19937") {
      DQ_TRY(const std::vector<int64_t> expected, g.integers(key));
      std::vector<int64_t> got;
      for (size_t i = 0; i < expected.size(); ++i) got.push_back(generator.next_u32());
      c.same(row, g, key, got);
    } else if (kind == "exponential") {
      DQ_CHECK(check_draw(g, row, key, noise(false), c, [&](std::span<float> out) {
        for (float& v : out) v = generator.exponential();
      }));
    } else if (kind == "rand") {
      DQ_CHECK(check_draw(
          g, row + "." + rest, key, [=](const Tensor&) { return rand_tolerance(bf16); }, c,
          [&](std::span<float> out) { generator.rand(out, type); }));
    } else if (kind == "cuda_philox") {
      DQ_CHECK(check_draw(
          g, row, key, [](const Tensor&) { return card_tolerance(); }, c,
          [&](std::span<float> out) { CudaGenerator(*seed).randn(out); }));
    } else if (kind == "randn") {
      DQ_CHECK(check_draw(g, row + "." + rest, key, noise(bf16), c,
                          [&](std::span<float> out) { generator.randn(out, type); }));
    }
  }
  return {};
}

}  // namespace

Tolerance noise_tolerance(bool bf16, const Tensor& golden) {
  if (bf16) return {Measure::bf16_ulp, 1, 1, "page: 1 ulp of bf16"};
  // The page's figure is one ulp for values of 4 and more; libm and torch's own log, sine and cosine may differ by two.
  const bool large = std::any_of(golden.data.begin(), golden.data.end(), [](float x) { return std::fabs(x) >= 4; });
  if (large)
    return {Measure::max_abs, 2 * page::kNoise, 1, "1e-06 absolute: two ulps, for it holds values of 4 and more"};
  return {Measure::max_abs, page::kNoise, 1, "page 5e-07 absolute"};
}

void add_random(Suite& suite, const std::filesystem::path& stem) {
  const auto g = suite.golden(stem);
  const std::string stage = g->label();
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> streams;
  std::vector<std::string> f64;
  for (const std::string& key : g->keys()) {
    const size_t at = key.find(".seed");
    const std::vector<std::string> parts = split(key);
    if (at == std::string::npos || parts.size() < 3) continue;  // counted with the leftovers
    if (parts.back() == "f64")
      f64.push_back(key);
    else
      streams[{parts[0], parts[1].substr(4)}].push_back(key);
  }
  static constexpr std::string_view kKinds[] = {"randn",           "rand",        "two_draws", "two_draws_bf16",
                                                "rand_then_randn", "multinomial", "mt19937",   "exponential",
                                                "cuda_philox"};
  for (const auto& [id, keys] : streams) {
    const auto& [kind, seed] = id;
    if (std::find(std::begin(kKinds), std::end(kKinds), kind) == std::end(kKinds)) continue;
    suite.add(stage, kind + ".seed" + seed, g, keys,
              [g, kind = kind, seed = seed, keys = keys](Checker& c) { return check_stream(*g, kind, seed, keys, c); });
  }
  if (!f64.empty()) suite.skip(stage, "randn in f64", g, f64, "no pipeline draws f64 noise; not in this build");
}

void add_init_latents(const Model& m) {
  const auto g = m.golden("init_latents");
  for (const std::string& key : g->keys_with("seed")) {
    const std::vector<std::string> parts = split(key);
    const auto seed = parse_seed_text(std::string_view(parts[0]).substr(4));
    if (!seed || (parts.back() != "f32" && parts.back() != "bf16")) continue;
    m.suite.add(m.stage("init_latents"), key, g, {key}, [g, key, seed, bf16 = parts.back() == "bf16"](Checker& c) {
      return check_draw(*g, key, key, noise(bf16), c, [&](std::span<float> out) {
        CpuGenerator(*seed).randn(out, bf16 ? WorkType::bf16 : WorkType::f32);
      });
    });
  }
}

namespace {

/// NAME.sigmas, NAME.timesteps, NAME.timesteps_as_bf16, NAME.model_t of one schedule; `set` changes the configured one.
void add_schedule(const Model& m, const std::shared_ptr<Golden>& g, const std::string& base, int steps,
                  int64_t image_tokens, const std::function<Result<void>(FlowMatchConfig&)>& set) {
  m.suite.add(m.stage("scheduler"), base, g, g->keys_with(base + "."),
              [m, g, base, steps, image_tokens, set](Checker& c) -> Result<void> {
                const std::filesystem::path file = m.directory / "scheduler/scheduler_config.json";
                DQ_TRY(const Json json, read_json(file));
                DQ_TRY(FlowMatchConfig config, FlowMatchConfig::parse(json, m.suite.label(file)));
                DQ_CHECK(set(config));
                const SigmaSpacing spacing =
                    m.is_z_image() ? SigmaSpacing::one_to_inverse_n : SigmaSpacing::one_to_zero;
                DQ_TRY(const Schedule s, make_schedule(config, steps, spacing, image_tokens));
                const auto check = [&](const char* what, std::vector<float> values, const Tolerance& t) {
                  if (!g->has(base + what)) return;
                  Tensor got;
                  got.shape = {static_cast<int64_t>(values.size())};
                  got.data = std::move(values);
                  c.compare(base, *g, base + what, got, t);
                };
                const Tolerance each{Measure::max_relative, page::kScheduler, 1, "page 1e-07 relative"};
                check(".sigmas", s.sigmas, each);
                check(".timesteps", s.timesteps, each);
                std::vector<float> rounded = s.timesteps, times = s.timesteps;
                for (float& t : rounded) t = timestep_as(t, WorkType::bf16);
                check(".timesteps_as_bf16", std::move(rounded), Tolerance::exact());
                for (float& t : times) t = (1000 - t) / 1000;
                check(".model_t", std::move(times), model_time_tolerance());
                return {};
              });
}

}  // namespace

Tolerance model_time_tolerance() { return {Measure::max_abs, page::kScheduler, 1, "one ulp of sigma"}; }

void add_scheduler(const Model& m) {
  const auto g = m.golden("scheduler");
  // shiftS.nN.sigmas (S may hold a dot) and dynamic.seqL.nN.sigmas
  for (const char* kind : {"shift", "dynamic.seq"})
    for (const std::string& name : g->names(kind, ".sigmas")) {
      const size_t dot = name.rfind(".n");
      if (dot == std::string::npos) continue;
      const auto steps = parse<int>(std::string_view(name).substr(dot + 2));
      const auto number = parse<double>(std::string_view(name).substr(0, dot));
      if (!steps || !number) continue;
      if (kind == std::string_view("shift"))
        add_schedule(m, g, kind + name, *steps, 0, [shift = *number](FlowMatchConfig& config) -> Result<void> {
          config.shift = shift;
          return {};
        });
      else
        add_schedule(m, g, kind + name, *steps, static_cast<int64_t>(*number),
                     [g](FlowMatchConfig& config) -> Result<void> {
                       Json json = g->json().value("dynamic_config", Json::object());
                       json["_class_name"] = "FlowMatchEulerDiscreteScheduler";
                       DQ_TRY(config, FlowMatchConfig::parse(json, g->label() + ".json"));
                       return {};
                     });
    }
}

}  // namespace danqing::app::verify
