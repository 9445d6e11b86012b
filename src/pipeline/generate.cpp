#include "pipeline/generate.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/try.h"
#include "image/convert.h"
#include "pipeline/finite.h"
#include "pipeline/job_memory.h"
#include "pipeline/metadata.h"

namespace danqing {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

struct Prompt {
  std::string text, revised, negative;
};

/// State of one call, so that each stage is a short function.
class Generation {
 public:
  Generation(ModelFamily& family, FeatureCache& cache, const GenerateRequest& request, const Settings& settings,
             const RunControl& control, const JobMemory& memory, ComputeType compute_type, LatentPreview* preview)
      : family_(family),
        cache_(cache),
        request_(request),
        s_(settings),
        control_(control),
        compute_type_(compute_type),
        preview_(preview),
        device_(*memory.device),
        residency_(family, memory),
        steps_(settings.steps - settings.first_step) {}

  Result<GenerateResult> run() {
    const auto start = Clock::now();
    result_.notes = s_.notes;
    result_.width = s_.width;
    result_.height = s_.height;
    result_.num_inference_steps = s_.steps;
    result_.guidance_scale = s_.guidance_scale;
    result_.shift = s_.shift;
    DQ_TRY(whole_,
           make_schedule(s_.scheduler, s_.steps, family_.sigma_spacing(), family_.image_seq_len(s_.width, s_.height)));
    schedule_ = {{whole_.sigmas.begin() + s_.first_step, whole_.sigmas.end()},
                 {whole_.timesteps.begin() + s_.first_step, whole_.timesteps.end()}};
    device_.reset_peak();
    DQ_CHECK(plan(false));
    DQ_CHECK(write_prompts());
    if (s_.enhance) DQ_CHECK(plan(true));  // the texts' lengths are known now
    if (s_.starts_from_image) DQ_CHECK(encode_image());
    for (int first = 0; first < s_.images;) {
      const int n = std::min(batch(), s_.images - first);
      DQ_CHECK(run_group(first, n));
      first += n;
    }
    result_.plan = residency_.current();
    result_.device_peak = device_.peak_allocated();
    std::sort(step_seconds_.begin(), step_seconds_.end());
    if (!step_seconds_.empty()) result_.seconds_per_step = step_seconds_[step_seconds_.size() / 2];
    result_.seconds_total = since(start);
    return std::move(result_);
  }

 private:
  int batch() const { return residency_.current().batch_size; }

  /// Where everything goes; with the enhancer still to come, for the longest texts that it may write.
  Result<void> plan(bool enhanced) {
    std::vector<std::string> texts = request_.revised_prompts.empty() ? request_.prompts : request_.revised_prompts;
    if (enhanced)
      for (size_t i = 0; i < texts.size(); ++i) texts[i] = prompts_[i].revised;
    DQ_TRY(JobShape job, job_shape(family_, request_, s_, texts, enhanced));
    job.encodes = control_.dump || (s_.enhance && !enhanced);
    for (const std::string& t : texts) job.encodes |= !cache_.find(t);
    for (const std::string& t : s_.negative_prompts) job.encodes |= s_.guided && !cache_.find(t);
    job.calibrates = preview_ && control_.on_preview && !preview_->ready_for_any();
    return residency_.plan(job, stage());
  }

  bool cancelled() const { return control_.cancelled && control_.cancelled(); }
  void report(ProgressEvent e) const {
    e.images = s_.images;
    if (control_.on_progress) control_.on_progress(e);
  }
  void dump(const std::string& tensor, const Tensor& t) const {
    if (control_.dump) control_.dump(tensor, t.shape, t.data);
  }

  /// Loading time is counted apart: from the first to the last progress call of a load.
  StageControl stage(const std::string& tap_prefix = "") {
    StageControl c;
    c.on_load = [this](uint64_t done, uint64_t total) {
      const auto now = Clock::now();
      if (loading_) result_.seconds_load += std::chrono::duration<double>(now - load_mark_).count();
      loading_ = done < total;
      load_mark_ = now;
      report(load_event(done, total));
      return !cancelled();
    };
    c.cancelled = control_.cancelled;
    c.note = [this](const std::string& text) {
      if (std::find(result_.notes.begin(), result_.notes.end(), text) == result_.notes.end())
        result_.notes.push_back(text);
    };
    if (control_.dump)
      c.taps = [this, tap_prefix](const std::string& tensor, const Tensor& t) { dump(tap_prefix + tensor, t); };
    return c;
  }

  Result<void> write_prompts() {
    const auto start = Clock::now();
    for (size_t i = 0; i < request_.prompts.size(); ++i) {
      Prompt p{request_.prompts[i], request_.prompts[i], s_.negative_prompts[i]};
      if (!request_.revised_prompts.empty()) {
        p.revised = request_.revised_prompts[i];
      } else if (s_.enhance) {
        EnhanceOptions o = request_.enhance;
        if (!o.seed) o.seed = s_.seeds[i * static_cast<size_t>(request_.images_per_prompt)];
        o.width = s_.width;
        o.height = s_.height;
        ProgressEvent e{Stage::enhance};
        e.image = static_cast<int>(i) * request_.images_per_prompt;
        DQ_TRY(EnhanceResult r, family_.enhance(p.text, o, stage(), [&](int done, int cap, const std::string& text) {
          e.step = done, e.steps = cap, e.text = text;
          report(e);
        }));
        if (r.reached_limit)
          result_.notes.push_back(
              fmt::format("the enhancer reached its limit of {} tokens; --max-tokens raises it", o.max_new_tokens));
        if (r.text.empty())
          result_.notes.push_back("the enhancer wrote nothing; the prompt is used as given");
        else
          p.revised = std::move(r.text);
      }
      prompts_.push_back(std::move(p));
    }
    if (s_.enhance) {
      residency_.leave(memory::Part::enhancer);
      result_.seconds_enhance = since(start);
    }
    return {};
  }

  Result<Tensor> features(const std::string& prompt, int image, const std::string& tap_prefix) {
    // With a dump every text is encoded once in this call, for its intermediates.
    if (const Tensor* t = cache_.find(prompt); t && (!control_.dump || dumped_.count(prompt))) return *t;
    ProgressEvent e{Stage::encode_text};
    e.image = image;
    report(e);
    if (cancelled()) return fail(ErrorCode::cancelled, "[text] stopped");
    const auto start = Clock::now();
    Tensor t;
    DQ_CHECK(residency_.fitting(stage(), [&]() -> Result<void> {
      DQ_TRY(t, family_.encode_prompt(prompt,
                                      stage(image > 0 ? fmt::format("image.{}.{}", image, tap_prefix) : tap_prefix)));
      return {};
    }));
    DQ_CHECK(check_finite(t, "text", [&](const TapSink& taps) {
      StageControl c = stage();
      c.taps = taps;
      return family_.encode_prompt(prompt, c);
    }));
    result_.seconds_text += since(start);
    dumped_.insert(prompt);
    return *cache_.put(prompt, std::move(t));
  }

  /// A text encoder that does not stay encodes the texts of the next groups too while it is there.
  Result<void> encode_ahead(int first) {
    if (residency_.keeps(memory::Part::text_encoder)) return {};
    size_t room = FeatureCache::kCapacity;
    for (int i = first; i < s_.images && room > 1; ++i) {
      const Prompt& p = prompts_[static_cast<size_t>(i / request_.images_per_prompt)];
      DQ_CHECK(features(p.revised, i, "text."));
      if (s_.guided) DQ_CHECK(features(p.negative, i, "negative_text."));
      room -= s_.guided ? 2 : 1;
    }
    return {};
  }

  /// The given picture, once for all that are drawn from it.
  Result<void> encode_image() {
    if (cancelled()) return fail(ErrorCode::cancelled, "[image] stopped");
    report({Stage::encode_image});
    DQ_TRY(const Image scaled, resize_image(request_.init_image, s_.width, s_.height));
    const Tensor picture = from_image(scaled);
    DQ_CHECK(residency_.fitting(stage(), [&]() -> Result<void> {
      DQ_TRY(encoded_, family_.encode_image(picture, stage()));
      return {};
    }));
    residency_.leave(memory::Part::vae_encoder);
    for (const auto& [what, t] : {std::pair{"image.mean", &encoded_.mean}, {"image.logvar", &encoded_.logvar}}) {
      DQ_CHECK(check_finite(*t, "encoding the given picture", {}));
      dump(what, *t);
    }
    return {};
  }

  /// What the denoiser starts from, of pictures first .. first+n-1: noise, or a given picture with noise over it.
  Result<Tensor> start_latents(int first, int n) {
    Shape shape = family_.latent_shape(s_.width, s_.height);
    const auto one = static_cast<size_t>(element_count(shape));
    shape.insert(shape.begin(), n);
    Tensor t(shape);
    for (int i = 0; i < n; ++i) {
      const std::span<float> out = std::span(t.data).subspan(static_cast<size_t>(i) * one, one);
      const int picture = first + i;
      if (!request_.latents.empty()) {
        std::copy_n(request_.latents.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(picture) * one), one,
                    out.begin());
        continue;
      }
      if (!request_.one_stream || !stream_) {
        const auto seed = s_.seeds[static_cast<size_t>(picture)];
        stream_ = make_generator(request_.cuda_noise ? GeneratorKind::cuda : GeneratorKind::cpu, seed);
        if (s_.starts_from_image) {
          DQ_TRY(image_, family_.image_latents(
                             encoded_, [&](std::span<float> values, WorkType type) { stream_->randn(values, type); }));
        }
        if (request_.one_stream) {  // one draw for the whole call, as one torch generator makes it
          noise_.resize(one * static_cast<size_t>(s_.images));
          stream_->randn(noise_, noise_type());
        }
      }
      if (request_.one_stream)
        std::copy_n(noise_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(picture) * one), one, out.begin());
      else
        stream_->randn(out, noise_type());
      if (s_.starts_from_image) add_image(out);
    }
    return t;
  }

  /// In the dtype in which the reference has it: beside a picture that of the VAE.
  WorkType noise_type() const { return s_.starts_from_image ? family_.decode_type() : family_.latent_type(); }

  /// noise -> sigma*noise + (1 - sigma)*picture at the sigma where the run enters the schedule.
  void add_image(std::span<float> noise) const {
    const WorkType type = noise_type();
    const float sigma = round_to(schedule_.sigmas.front(), type), rest = round_to(1.0f - sigma, type);
    for (size_t i = 0; i < noise.size(); ++i)
      noise[i] = round_to(round_to(sigma * noise[i], type) + round_to(rest * image_.data[i], type), type);
  }

  Result<void> run_group(int first, int n) {
    std::vector<Tensor> cond, uncond;
    if (!have_features(first, n)) DQ_CHECK(encode_ahead(first));
    for (int i = first; i < first + n; ++i) {
      const Prompt& p = prompts_[static_cast<size_t>(i / request_.images_per_prompt)];
      DQ_TRY(Tensor c, features(p.revised, i, "text."));
      cond.push_back(std::move(c));
      if (!s_.guided) continue;
      DQ_TRY(Tensor u, features(p.negative, i, "negative_text."));
      uncond.push_back(std::move(u));
    }
    residency_.leave(memory::Part::text_encoder);
    const std::string group = n < s_.images ? fmt::format("image.{}.", first) : "";
    DQ_TRY(Tensor latents, start_latents(first, n));
    dump(group + "init_latents", latents);
    dump(group + "sigmas", Tensor({static_cast<int64_t>(whole_.sigmas.size())}, whole_.sigmas));
    dump(group + "timesteps", Tensor({static_cast<int64_t>(whole_.timesteps.size())}, whole_.timesteps));
    const Tensor start = latents;
    DQ_CHECK(residency_.fitting(stage(), [&] { return denoise_all(start, latents, cond, uncond, first, group); }));
    residency_.leave(memory::Part::transformer);
    dump(group + "final_latents", latents);
    DQ_CHECK(decode(latents, first, n, group));
    residency_.leave(memory::Part::vae);
    return {};
  }

  /// A plan that had to be made smaller may take fewer of a group at once.
  Result<void> denoise_all(const Tensor& start, Tensor& latents, const std::vector<Tensor>& cond,
                           const std::vector<Tensor>& uncond, int first, const std::string& group) {
    const auto n = static_cast<int>(start.size(0));
    for (int i = 0; i < n; i += batch()) {
      const int m = std::min(batch(), n - i);
      Tensor part = slice(start, i, m);
      const auto texts = [&](const std::vector<Tensor>& all) {
        return all.empty() ? std::span<const Tensor>()
                           : std::span(all).subspan(static_cast<size_t>(i), static_cast<size_t>(m));
      };
      DQ_CHECK(denoise(part, texts(cond), texts(uncond), first + i, group));
      std::copy(part.data.begin(), part.data.end(),
                latents.data.begin() + static_cast<std::ptrdiff_t>(part.data.size()) / m * i);
    }
    return {};
  }

  bool have_features(int first, int n) {
    for (int i = first; i < first + n; ++i) {
      const Prompt& p = prompts_[static_cast<size_t>(i / request_.images_per_prompt)];
      for (const std::string* text : {&p.revised, s_.guided ? &p.negative : &p.revised})
        if (!cache_.find(*text) || (control_.dump && !dumped_.count(*text))) return false;
    }
    return true;
  }

  Result<void> denoise(Tensor& latents, std::span<const Tensor> cond, std::span<const Tensor> uncond, int first,
                       const std::string& group) {
    const auto start = Clock::now();
    const double load_before = result_.seconds_load;
    auto step_start = start;
    double step_load = load_before;
    ProgressEvent e{Stage::denoise};
    e.steps = steps_;
    e.image = first;
    if (steps_ > 0) report(e);
    const Guidance guidance{s_.guidance_scale, s_.cfg_normalization, s_.cfg_truncation};
    SamplerCallbacks callbacks;
    callbacks.predict = [&](std::span<const float> x, float sigma) -> Result<std::vector<float>> {
      if (cancelled()) return fail(ErrorCode::cancelled, "[denoise] stopped at step {} of {}", e.step, steps_);
      const Tensor in(latents.shape, std::vector<float>(x.begin(), x.end()));
      DQ_TRY(Tensor out,
             family_.predict(in, sigma, cond, uncond, guidance, stage(fmt::format("{}step.{}.", group, e.step))));
      DQ_CHECK(check_finite(out, fmt::format("denoise, step {} of {}", e.step + 1, steps_), [&](const TapSink& taps) {
        StageControl c = stage();
        c.taps = taps;
        return family_.predict(in, sigma, cond, uncond, guidance, c);
      }));
      DQ_CHECK(show_preview(in, sigma, out, first, e.step));
      return std::move(out.data);
    };
    callbacks.after_step = [&](int step, std::span<const float> x) -> Result<void> {
      const double seconds = since(step_start) - (result_.seconds_load - step_load);
      step_seconds_.push_back(seconds);
      step_start = Clock::now();
      step_load = result_.seconds_load;
      e.step = step + 1;
      e.seconds_per_step = seconds;
      if (control_.dump)
        dump(fmt::format("{}step.{}.latents", group, step), Tensor(latents.shape, {x.begin(), x.end()}));
      report(e);
      return {};
    };
    DQ_CHECK(run_sampler(s_.sampler, schedule_, latents.data, family_.latent_type(), callbacks));
    result_.seconds_denoise += since(start) - (result_.seconds_load - load_before);
    return {};
  }

  /// The prediction is the velocity noise - picture (flow matching), so x - sigma*v is where the step believes the
  /// picture to be: much clearer than the noisy latents themselves.
  Result<void> show_preview(const Tensor& x, float sigma, const Tensor& velocity, int first, int step) {
    if (!preview_ || !control_.on_preview || (control_.wants_preview && !control_.wants_preview(step))) return {};
    if (step == previewed_step_ && first == previewed_first_) return {};  // a solver's second look at the same step
    previewed_step_ = step;
    previewed_first_ = first;
    Tensor target = x;
    for (size_t i = 0; i < target.data.size(); ++i) target.data[i] -= sigma * velocity.data[i];
    for (int64_t i = 0; i < target.size(0); ++i) {
      DQ_TRY(const Tensor z, family_.vae_latents(slice(target, i, 1), stage()));
      if (z.shape.size() != 4) return {};
      if (!preview_->ready(z.size(1))) {
        if (!family_.slot(memory::Part::vae)->loaded()) return {};  // its turn comes after the denoiser's
        DQ_CHECK(calibrate(slice(target, i, 1)));
      }
      const Image image = preview_->draw(z);
      if (image.width > 0) control_.on_preview(first + static_cast<int>(i), step, image);
    }
    return {};
  }

  /// A VAE that is met for the first time: decodes a small cut of the latents.
  Result<void> calibrate(const Tensor& latents) {
    const int64_t h = std::min<int64_t>(kPreviewCut, latents.size(2)),
                  w = std::min<int64_t>(kPreviewCut, latents.size(3));
    Tensor cut({1, latents.size(1), h, w});
    for (int64_t c = 0; c < latents.size(1); ++c)
      for (int64_t y = 0; y < h; ++y)
        for (int64_t k = 0; k < w; ++k)
          cut.data[static_cast<size_t>((c * h + y) * w + k)] =
              latents.data[static_cast<size_t>((c * latents.size(2) + y) * latents.size(3) + k)];
    DQ_TRY(const Tensor z, family_.vae_latents(cut, stage()));
    DQ_TRY(const Tensor decoded, family_.decode(cut, stage()));
    family_.slot(memory::Part::vae)->release();
    preview_->learn(z, decoded);
    return {};
  }

  Result<void> decode(const Tensor& latents, int first, int n, const std::string& group) {
    for (int i = 0; i < n; ++i) {
      if (cancelled()) return fail(ErrorCode::cancelled, "[decode] stopped");
      ProgressEvent e{Stage::decode};
      e.image = first + i;
      report(e);
      const auto start = Clock::now();
      const double load_before = result_.seconds_load;
      const Tensor one = slice(latents, i, 1);
      Tensor decoded;
      DQ_CHECK(residency_.fitting(stage(), [&]() -> Result<void> {
        DQ_TRY(decoded, family_.decode(one, stage(n > 1 ? fmt::format("image.{}.", first + i) : group)));
        return {};
      }));
      DQ_CHECK(check_finite(decoded, "decode", [&](const TapSink& taps) {
        StageControl c = stage();
        c.taps = taps;
        return family_.decode(one, c);
      }));
      dump((n > 1 ? fmt::format("image.{}.", first + i) : group) + "decoded", decoded);
      DQ_TRY(std::vector<Image> images, to_images(decoded, family_.decode_type()));
      if (preview_ && control_.on_preview) {
        DQ_TRY(const Tensor z, family_.vae_latents(one, stage()));
        preview_->learn(z, decoded);
      }
      result_.seconds_decode += since(start) - (result_.seconds_load - load_before);
      const Prompt& p = prompts_[static_cast<size_t>((first + i) / request_.images_per_prompt)];
      GeneratedImage g{std::move(images[0]), first + i, s_.seeds[static_cast<size_t>(first + i)], p.text, p.revised,
                       p.negative,           {}};
      g.metadata = make_metadata(g, s_, family_.info(), request_, compute_type_);
      if (control_.on_image) control_.on_image(g);
      result_.images.push_back(std::move(g));
    }
    return {};
  }

  ModelFamily& family_;
  FeatureCache& cache_;
  const GenerateRequest& request_;
  const Settings& s_;
  const RunControl& control_;
  ComputeType compute_type_;
  LatentPreview* preview_;
  Device& device_;
  JobResidency residency_;
  int previewed_step_ = -1, previewed_first_ = -1;
  GenerateResult result_;
  int steps_;  // that are run: all, or those that a given picture leaves
  Schedule whole_, schedule_;
  std::vector<Prompt> prompts_;
  EncodedImage encoded_;
  Tensor image_;  // its latents for the generator in hand
  std::unique_ptr<NoiseGenerator> stream_;
  std::vector<float> noise_;      // of all pictures, where one generator draws it
  std::set<std::string> dumped_;  // prompts whose intermediates were sent
  std::vector<double> step_seconds_;
  bool loading_ = false;
  Clock::time_point load_mark_;
};

}  // namespace

ProgressEvent load_event(uint64_t done, uint64_t total) {
  ProgressEvent e{Stage::load};
  e.steps = 1000;
  e.step = total ? static_cast<int>(1000 * (static_cast<double>(done) / static_cast<double>(total))) : 1000;
  return e;
}

const Tensor* FeatureCache::find(const std::string& prompt) {
  for (auto it = entries_.begin(); it != entries_.end(); ++it)
    if (it->first == prompt) {
      entries_.splice(entries_.begin(), entries_, it);
      return &entries_.front().second;
    }
  return nullptr;
}

const Tensor* FeatureCache::put(const std::string& prompt, Tensor features) {
  entries_.remove_if([&](const auto& e) { return e.first == prompt; });
  entries_.emplace_front(prompt, std::move(features));
  if (entries_.size() > kCapacity) entries_.pop_back();
  return &entries_.front().second;
}

Result<GenerateResult> generate(ModelFamily& family, FeatureCache& cache, const GenerateRequest& request,
                                const Settings& settings, const RunControl& control, const JobMemory& memory,
                                ComputeType compute_type, LatentPreview* preview) {
  return Generation(family, cache, request, settings, control, memory, compute_type, preview).run();
}

}  // namespace danqing
