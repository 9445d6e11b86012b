#include "models/vae/chain.h"

#include <fmt/format.h>

#include <algorithm>

namespace danqing::vae {
namespace {

using Kind = Layer::Kind;

class Builder {
 public:
  explicit Builder(int64_t channels, int shift) { chain_.points.push_back({channels, 0, shift}); }
  Chain take() { return std::move(chain_); }

  void conv(const std::string& name, int64_t out, int64_t kernel = 3) {
    push({Kind::conv, name, channels(), out, kernel}, 0);
  }
  void resample(Kind kind, const std::string& name, int by) { push({kind, name, channels(), channels()}, by); }
  void norm(const std::string& name, bool begins = false) {
    Layer l{Kind::norm, name, channels(), channels()};
    l.silu = true, l.begins = begins;
    push(std::move(l), 0);
  }
  void resnet(const std::string& name, int64_t out) {
    const int64_t in = channels();
    norm(name + ".norm1", true);
    conv(name + ".conv1", out);
    norm(name + ".norm2");
    conv(name + ".conv2", out);
    Layer l{Kind::add, name + ".conv_shortcut", in, out};
    l.shortcut = in != out;
    push(std::move(l), 0);
  }
  void middle(const std::string& name, bool attention) {
    resnet(name + ".resnets.0", channels());
    if (attention) {
      push({Kind::attention, name + ".attentions.0", channels(), channels()}, 0);
      tap("mid_attention");
    }
    resnet(name + ".resnets.1", channels());
    tap("mid_block");
  }
  void tap(std::string name) { chain_.layers.back().tap = std::move(name); }

 private:
  int64_t channels() const { return chain_.points.back().channels; }
  void push(Layer l, int by) {
    const Point before = chain_.points.back();
    Point after{l.out, before.kept_channels, before.shift + by};
    if (l.begins) after.kept_channels = before.channels;
    if (l.kind == Kind::add) after.kept_channels = 0;
    chain_.layers.push_back(std::move(l));
    chain_.points.push_back(after);
  }
  Chain chain_;
};

int levels(const Config& c) { return static_cast<int>(c.block_out_channels.size()) - 1; }

}  // namespace

double Point::values() const {
  return static_cast<double>(channels + kept_channels) * static_cast<double>(int64_t{1} << (2 * shift));
}

Chain decoder_chain(const Config& c) {
  const std::vector<int64_t>& widths = c.decoder_widths();
  Builder b(c.latent_channels, 0);
  if (c.use_post_quant_conv) {
    b.conv("post_quant_conv", c.latent_channels, 1);
    b.tap("post_quant_conv");
  }
  b.conv("decoder.conv_in", widths.back());
  b.tap("conv_in");
  b.middle("decoder.mid_block", c.mid_block_add_attention);
  for (size_t i = 0; i < widths.size(); ++i) {
    const std::string block = fmt::format("decoder.up_blocks.{}.", i);
    for (int64_t j = 0; j <= c.layers_per_block; ++j)
      b.resnet(fmt::format("{}resnets.{}", block, j), widths[widths.size() - 1 - i]);
    if (i + 1 < widths.size()) b.resample(Kind::up, block + "upsamplers.0.conv", 1);
    b.tap(fmt::format("up.{}", i));
  }
  b.norm("decoder.conv_norm_out");
  b.tap("norm_out");
  b.conv("decoder.conv_out", c.out_channels);
  return b.take();
}

Chain encoder_chain(const Config& c) {
  const std::vector<int64_t>& widths = c.block_out_channels;
  Builder b(c.in_channels, levels(c));
  b.conv("encoder.conv_in", widths.front());
  for (size_t i = 0; i < widths.size(); ++i) {
    const std::string block = fmt::format("encoder.down_blocks.{}.", i);
    for (int64_t j = 0; j < c.layers_per_block; ++j) b.resnet(fmt::format("{}resnets.{}", block, j), widths[i]);
    if (i + 1 < widths.size()) b.resample(Kind::down, block + "downsamplers.0.conv", -1);
  }
  b.middle("encoder.mid_block", c.mid_block_add_attention);
  b.norm("encoder.conv_norm_out");
  b.conv("encoder.conv_out", 2 * c.latent_channels);
  if (c.use_quant_conv) b.conv("quant_conv", 2 * c.latent_channels, 1);
  return b.take();
}

std::vector<int64_t> Way::shape() const {
  std::vector<int64_t> s{input.length(), kept_input.length(), kept.before, kept.after};
  for (const Margin& m : margins) s.insert(s.end(), {m.before, m.after});
  return s;
}

Way way_back(const Chain& chain, size_t from, size_t to, Interval v, int64_t latents, bool want_kept) {
  Way way;
  way.margins.resize(to - from);
  Interval kept = want_kept ? v : Interval{};
  Margin* cut = want_kept ? &way.kept : nullptr;  // where to say what the kept picture has too much
  for (size_t i = to; i-- > from;) {
    const Layer& l = chain.layers[i];
    const int64_t size = latents << chain.points[i].shift;
    Margin& m = way.margins[i - from];
    Interval need = v;
    const auto clip = [&] {
      v = {std::max<int64_t>(need.begin, 0), std::min(need.end, size)};
      m = {v.begin - need.begin, need.end - v.end};
    };
    switch (l.kind) {
      case Kind::conv:
        need = {v.begin - l.kernel / 2, v.end + l.kernel / 2};
        clip();
        break;
      case Kind::up:
        need = {v.begin - 1, v.end + 1};
        v = {std::max<int64_t>(need.begin, 0) / 2, std::min((need.end + 1) / 2, size)};
        m = {2 * v.begin - need.begin, need.end - 2 * v.end};
        break;
      case Kind::down:
        need = {2 * v.begin, 2 * v.end + 1};
        clip();
        break;
      case Kind::add:
        kept = v;
        cut = &m;
        break;
      case Kind::norm:
        if (l.begins && cut) {  // the convolutions between asked for at least as much
          *cut = {kept.begin - v.begin, v.end - kept.end};
          kept = {}, cut = nullptr;
        }
        break;
      case Kind::attention: break;
    }
  }
  way.input = v, way.kept_input = kept;
  return way;
}

double work(const Layer& l) {
  const double product = static_cast<double>(l.in) * static_cast<double>(l.out);
  switch (l.kind) {
    case Kind::conv: return product * static_cast<double>(l.kernel * l.kernel);
    case Kind::up:
    case Kind::down: return product * 9;
    case Kind::add: return l.shortcut ? product : 0;
    case Kind::attention: return product * 4;
    case Kind::norm: return 0;
  }
  return 0;
}

}  // namespace danqing::vae
