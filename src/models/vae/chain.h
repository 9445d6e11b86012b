// The decoder and the encoder as one row of layers, and which part of a picture each layer needs for a part of its
// result. Sizes along an axis are counted in latents; at a point with `shift` a latent is 2^shift pixels.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/vae/vae.h"

namespace danqing::vae {

struct Layer {
  enum class Kind {
    conv,       ///< kernel x kernel, the same size
    up,         ///< every pixel twice in both directions, then 3x3
    down,       ///< 3x3 with stride 2; a row and a column of zeros below and to the right
    norm,       ///< group norm, then SiLU if `silu`; where `begins`, its input is kept for the next `add`
    add,        ///< result + what was kept (through a 1x1 convolution if `shortcut`)
    attention,  ///< over all pixels, with its norm and its addition
  };
  Kind kind;
  std::string name;  ///< of its tensors
  int64_t in = 0, out = 0;
  int64_t kernel = 3;
  bool silu = false, begins = false, shortcut = false;
  std::string tap = {};  ///< what its result is called in goldens (of a norm: before SiLU)
  bool synchronises() const { return kind == Kind::norm || kind == Kind::attention; }  ///< needs the whole picture
};

/// What lies between two layers.
struct Point {
  int64_t channels = 0;
  int64_t kept_channels = 0;  ///< of the picture that waits for the next `add`; 0: none
  int shift = 0;
  double values() const;  ///< of all its pictures, per latent
};

struct Chain {
  std::vector<Layer> layers;
  std::vector<Point> points;  ///< points[i] lies before layers[i]; one more at the end
  size_t size() const { return layers.size(); }
};
Chain decoder_chain(const Config& c);
Chain encoder_chain(const Config& c);

/// Half open, in pixels of its point.
struct Interval {
  int64_t begin = 0, end = 0;
  int64_t length() const { return end - begin; }
};
/// What a layer adds in zeros before and after its input (less than 0: leaves out); of `add`: cuts from what was kept.
struct Margin {
  int64_t before = 0, after = 0;
  bool operator==(const Margin&) const = default;
  bool operator<(const Margin& o) const { return before != o.before ? before < o.before : after < o.after; }
};
/// The way back from an interval of point `to` to what it needs at point `from`, along one axis.
struct Way {
  Interval input, kept_input;          ///< at `from`; kept_input is empty if nothing is kept there
  std::vector<Margin> margins;         ///< of layers from .. to-1
  Margin kept;                         ///< cut from the kept picture at `to`, if it is wanted
  std::vector<int64_t> shape() const;  ///< equal shapes need equal graphs
};
/// `latents` along the axis. `want_kept`: the result includes the picture kept at `to` (computed since `from`).
Way way_back(const Chain& chain, size_t from, size_t to, Interval result, int64_t latents, bool want_kept);

/// Multiply-adds of one layer per pixel of its result. Attention: without the products over pairs of pixels.
double work(const Layer& layer);

}  // namespace danqing::vae
