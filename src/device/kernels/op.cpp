#include "device/kernels/op.h"

#include <algorithm>

namespace danqing::kernels {
namespace {

struct Op {
  OpFunction f;
  Pool* pool;
  Graph::Scratch* scratch;
};

void run_op(ggml_tensor* out, int ith, int /*nth*/, void* data) {
  if (ith != 0) return;
  const Op& op = *static_cast<const Op*>(data);
  op.f({out, *op.pool, op.scratch->data});
}

}  // namespace

ggml_tensor* op(Graph& g, const char* name, const std::array<int64_t, 4>& ne, const std::vector<ggml_tensor*>& inputs,
                size_t scratch, OpFunction f) {
  g.need_scratch(scratch);
  auto owned = std::make_shared<Op>(Op{std::move(f), g.device().pool(), &g.scratch()});
  std::vector<ggml_tensor*> args = inputs;
  ggml_tensor* t = ggml_custom_4d(g.ctx(), GGML_TYPE_F32, ne[0], ne[1], ne[2], ne[3], args.data(),
                                  static_cast<int>(args.size()), run_op, 1, owned.get());
  ggml_set_name(t, name);
  g.own(std::move(owned));
  return t;
}

void for_ranges(Pool& pool, int64_t n, int64_t grain,
                const std::function<void(int64_t first, int64_t last, int worker)>& f) {
  grain = std::max<int64_t>(grain, 1);
  pool.run((n + grain - 1) / grain,
           [&](int64_t task, int worker) { f(task * grain, std::min(n, (task + 1) * grain), worker); });
}

}  // namespace danqing::kernels
