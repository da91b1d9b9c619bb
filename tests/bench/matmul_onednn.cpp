#include "tests/bench/matmul_onednn.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

namespace lockstep::bench {
namespace {

using dnnl::memory;

memory::desc description(ConstTensor t, bool transpose) {
  const auto type = t.dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const auto rows = t.shape[0], columns = t.shape[1];
  return transpose ? memory::desc({columns, rows}, type, memory::dims{1, columns})
                   : memory::desc({rows, columns}, type, memory::dims{columns, 1});
}

dnnl::matmul::primitive_desc plan(const dnnl::engine& engine, const memory::desc& a,
                                  const memory::desc& b, const memory::desc& c, bool accumulate) {
  dnnl::primitive_attr attributes;
  dnnl::post_ops post;
  if (accumulate) post.append_sum(1.0f);
  attributes.set_post_ops(post);
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
}

}  // namespace

struct OneDnnProduct::State {
  State(Tensor c, ConstTensor a, ConstTensor b, bool ta, bool tb, bool add)
      : transpose_a(ta),
        transpose_b(tb),
        accumulate(add),
        out(c),
        left(a),
        right(b),
        primitive(plan(engine, description(a, ta), description(b, tb), description(c, false), add)),
        arguments{
            {DNNL_ARG_SRC, memory(description(a, ta), engine, const_cast<std::byte*>(a.data))},
            {DNNL_ARG_WEIGHTS, memory(description(b, tb), engine, const_cast<std::byte*>(b.data))},
            {DNNL_ARG_DST, memory(description(c, false), engine, c.data)}} {}
  bool transpose_a, transpose_b, accumulate;
  Tensor out;
  ConstTensor left, right;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul primitive;
  std::unordered_map<int, memory> arguments;
};

OneDnnProduct::OneDnnProduct(Tensor c, ConstTensor a, ConstTensor b, bool transpose_a,
                             bool transpose_b, bool accumulate)
    : state_(std::make_unique<State>(c, a, b, transpose_a, transpose_b, accumulate)) {}

OneDnnProduct::~OneDnnProduct() = default;

void OneDnnProduct::run_matmul() {
  state_->primitive.execute(state_->stream, state_->arguments);
  state_->stream.wait();
}

void OneDnnProduct::run_sgemm() {
  const State& s = *state_;
  const auto M = s.out.shape[0], N = s.out.shape[1];
  const auto K = s.transpose_a ? s.left.shape[0] : s.left.shape[1];
  dnnl::sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', M, N, K, 1.0f,
              s.left.as<float>(), s.left.shape[1], s.right.as<float>(), s.right.shape[1],
              s.accumulate ? 1.0f : 0.0f, s.out.as<float>(), N);
}

}  // namespace lockstep::bench
