#include "device/graph.h"

#include <algorithm>
#include <cassert>
#include <new>

#include "base/float_bits.h"
#include "base/try.h"
#include "device/dequantize.h"
#include "device/kernels/channels_last.h"
#include "device/streamed_pass.h"

namespace danqing {
namespace {

constexpr size_t kSlack = 8;  // tensors that a single ggml call may create after one call of ctx()

Shape torch_shape(const ggml_tensor* t) {
  Shape s;
  for (int i = ggml_n_dims(t) - 1; i >= 0; --i) s.push_back(t->ne[i]);
  return s;
}

/// A tensor kept for reading must keep the memory that it is a view of.
void pin(ggml_tensor* t) {
  ggml_set_output(t);
  if (t->view_src && !t->view_src->data) ggml_set_output(t->view_src);
}

Result<Tensor> fetch(const ggml_tensor* t, const Shape& shape) {
  const auto dtype = dtype_from_ggml(t->type);
  if (!dtype || !t->buffer)
    return fail(ErrorCode::failed, "[graph] expected a computed tensor, got {} before any run", t->name);
  Tensor out(shape);
  if (t->type == GGML_TYPE_F32) {
    ggml_backend_tensor_get(t, out.data.data(), 0, ggml_nbytes(t));
    return out;
  }
  std::vector<std::byte> stored(ggml_nbytes(t));
  ggml_backend_tensor_get(t, stored.data(), 0, stored.size());
  DQ_CHECK(dequantize(*dtype, stored, out.data));
  return out;
}

}  // namespace

Graph::Graph(Device& device, size_t max_nodes, bool keep_taps)
    : device_(device), nodes_per_context_(std::max<size_t>(max_nodes, 64)), keep_taps_(keep_taps) {}

Graph::~Graph() {
  if (graph_context_) ggml_free(graph_context_);
  for (ggml_context* c : contexts_) ggml_free(c);
}

ggml_context* Graph::ctx() const {
  const size_t slack = kSlack * ggml_tensor_overhead();
  if (contexts_.empty() || ggml_used_mem(contexts_.back()) + slack > ggml_get_mem_size(contexts_.back())) {
    contexts_.push_back(ggml_init({nodes_per_context_ * ggml_tensor_overhead() + slack, nullptr, true}));
  }
  return contexts_.back();
}

ggml_tensor* Graph::input(std::string name, DType dtype, const Shape& shape) {
  assert(shape.size() <= 4 && element_count(shape) > 0);
  int64_t ne[4] = {1, 1, 1, 1};
  std::reverse_copy(shape.begin(), shape.end(), ne);
  ggml_tensor* t = ggml_new_tensor(ctx(), static_cast<ggml_type>(traits(dtype).ggml_type), 4, ne);
  ggml_set_name(t, name.c_str());
  ggml_set_input(t);
  ggml_set_output(t);  // so that its memory is not used for anything else and the next run finds the values again
  inputs_.push_back({std::move(name), t, shape});
  return t;
}

Graph::Named Graph::keep(std::string name, ggml_tensor* t, Shape shape) {
  if (!ggml_is_contiguous(t)) t = device_.pool() ? kernels::plain(*this, t) : ggml_cont(ctx(), t);
  pin(t);
  required_.push_back(t);
  if (shape.empty()) shape = torch_shape(t);
  assert(element_count(shape) == ggml_nelements(t));
  return {std::move(name), t, std::move(shape)};
}

void Graph::output(std::string name, ggml_tensor* t, Shape shape) {
  outputs_.push_back(keep(std::move(name), t, std::move(shape)));
}

void Graph::tap(const std::string& name, ggml_tensor* t, Shape shape) {
  if (keep_taps_) taps_.push_back(keep(name, t, std::move(shape)));
}

void Graph::require(ggml_tensor* t) { required_.push_back(t); }

Graph::Named* Graph::find(std::vector<Named>& in, std::string_view name) {
  const auto it = std::find_if(in.begin(), in.end(), [&](const Named& n) { return n.name == name; });
  return it == in.end() ? nullptr : &*it;
}

ggml_cgraph* Graph::finish() {
  if (graph_) return graph_;
  size_t tensors = required_.size() + 1;
  for (ggml_context* c : contexts_)
    for (ggml_tensor* t = ggml_get_first_tensor(c); t; t = ggml_get_next_tensor(c, t))
      tensors += 1 + (t->op == GGML_OP_NONE ? 0 : 2);
  graph_context_ = ggml_init({ggml_graph_overhead_custom(tensors, false) + ggml_tensor_overhead(), nullptr, true});
  graph_ = ggml_new_graph_custom(graph_context_, tensors, false);
  for (ggml_tensor* t : required_) ggml_build_forward_expand(graph_, t);
  kernels::reuse_inputs(graph_);
  return graph_;
}

namespace {
constexpr size_t kScratchAlign = 64;
size_t scratch_bytes(const Graph::Scratch& s) { return s.bytes ? s.bytes + kScratchAlign : 0; }
}  // namespace

Runner::Runner(std::unique_ptr<Graph> graph) : graph_(std::move(graph)) {}
Runner::~Runner() = default;
Runner::Runner(Runner&&) noexcept = default;

size_t Runner::measure() {
  const size_t scratch = scratch_bytes(graph_->scratch_);
  if (buffer_) return buffer_.get_deleter().bytes + scratch + work_.bytes();
  ggml_cgraph* graph = graph_->finish();
  return graph_->device().measure_graph(graph) + graph_->device().work_bytes(graph) + scratch;
}

Result<void> Runner::prepare() {
  if (buffer_) return {};
  Device& device = graph_->device();
  ggml_cgraph* graph = graph_->finish();
  DQ_TRY(streamed_, StreamedPass::cut(device, graph));
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    if (!ggml_backend_supports_op(device.backend(), node))
      return fail(ErrorCode::failed, "[graph] expected {} to compute {} of {} {}, got no support for it in ggml {}",
                  device.info().name, ggml_op_desc(node),
                  ggml_type_name(node->src[0] ? node->src[0]->type : node->type), to_string(torch_shape(node)),
                  ggml_version());
  }
  if (const size_t bytes = scratch_bytes(graph_->scratch_); bytes && !scratch_) {
    DQ_TRY(scratch_, device.allocate(bytes, "scratch of the kernels"));
    const auto base = reinterpret_cast<uintptr_t>(ggml_backend_buffer_get_base(scratch_.get()));
    graph_->scratch_.data = reinterpret_cast<std::byte*>((base + kScratchAlign - 1) / kScratchAlign * kScratchAlign);
  }
  work_ = {};
  DQ_TRY(work_, device.charge(device.work_bytes(graph), "work of operations"));
  DQ_TRY(buffer_, device.allocate_graph(graph, "intermediate results"));
  return {};
}

Result<Graph::Named*> Runner::input_for(std::string_view name, size_t count) {
  Graph::Named* in = graph_->find(graph_->inputs_, name);
  if (!in) return fail(ErrorCode::failed, "[graph] expected the name of an input, got \"{}\"", name);
  if (static_cast<size_t>(ggml_nelements(in->tensor)) != count)
    return fail(ErrorCode::failed, "[graph] expected {} values {} for the input {}, got {}", ggml_nelements(in->tensor),
                to_string(in->shape), name, count);
  DQ_CHECK(prepare());
  return in;
}

Result<void> Runner::set(std::string_view name, std::span<const float> values) {
  DQ_TRY(Graph::Named * in, input_for(name, values.size()));
  ggml_tensor* t = in->tensor;
  const auto dtype = dtype_from_ggml(t->type);
  if (!dtype || t->type == GGML_TYPE_I32)
    return fail(ErrorCode::failed, "[graph] expected {} values for the input {}, got f32", ggml_type_name(t->type),
                name);
  if (!t->buffer) return {};
  if (t->type == GGML_TYPE_F32) {
    ggml_backend_tensor_set(t, values.data(), 0, values.size_bytes());
    return {};
  }
  std::vector<std::byte> stored(ggml_nbytes(t));
  DQ_CHECK(quantize(*dtype, values, t->ne[0], stored));
  ggml_backend_tensor_set(t, stored.data(), 0, stored.size());
  return {};
}

Result<void> Runner::set(std::string_view name, std::span<const int32_t> values) {
  DQ_TRY(Graph::Named * in, input_for(name, values.size()));
  if (in->tensor->type != GGML_TYPE_I32)
    return fail(ErrorCode::failed, "[graph] expected {} values for the input {}, got i32",
                ggml_type_name(in->tensor->type), name);
  if (in->tensor->buffer) ggml_backend_tensor_set(in->tensor, values.data(), 0, values.size_bytes());
  return {};
}

Result<void> Runner::run(const std::function<bool()>& cancelled) {
  if (cancelled && cancelled()) return fail(ErrorCode::cancelled, "[graph] cancelled");
  DQ_CHECK(prepare());
  const Device& device = graph_->device();
  if (cancelled)
    device.set_abort_callback([](void* f) { return (*static_cast<const std::function<bool()>*>(f))(); },
                              const_cast<std::function<bool()>*>(&cancelled));
  ggml_status status = GGML_STATUS_FAILED;
  Result<void> read = {};
  try {
    if (streamed_) {
      const Result<ggml_status> computed = streamed_->compute();
      if (computed)
        status = *computed;
      else
        read = computed.error();
    } else {
      status = ggml_backend_graph_compute(device.backend(), graph_->finish());
    }
  } catch (const std::bad_alloc&) {  // ggml's CPU backend takes its scratch memory with new
    status = GGML_STATUS_ALLOC_FAILED;
  } catch (const std::exception&) {  // a GPU driver's exception
  }
  if (cancelled) device.set_abort_callback(nullptr, nullptr);
  DQ_CHECK(read);
  switch (status) {
    case GGML_STATUS_SUCCESS: return {};
    case GGML_STATUS_ABORTED: return fail(ErrorCode::cancelled, "[graph] cancelled");
    case GGML_STATUS_ALLOC_FAILED:
      return fail(ErrorCode::does_not_fit, "[graph] expected scratch memory on {}, got none", device.info().name);
    default: break;
  }
  return fail(ErrorCode::device_lost, "[graph] expected {} ({}) to compute, got a failure of the device or its driver",
              device.info().name, device.info().description);
}

Result<Tensor> Runner::read(std::string_view name) const {
  const Graph::Named* out = graph_->find(graph_->outputs_, name);
  if (!out) return fail(ErrorCode::failed, "[graph] expected the name of an output, got \"{}\"", name);
  return fetch(out->tensor, out->shape);
}

Result<void> Runner::send_taps(const TapSink& sink, const std::string& prefix) const {
  if (!sink) return {};
  for (const Graph::Named& tap : graph_->taps_) {
    DQ_TRY(Tensor value, fetch(tap.tensor, tap.shape));
    sink(prefix + tap.name, value);
  }
  return {};
}

}  // namespace danqing
