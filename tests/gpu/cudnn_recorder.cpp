// Replaces cuDNN, in the library of recorder.cpp, which is found as libcudnn.so.9. The frontend of
// cuDNN describes tensors, operations and a graph, gets configurations from heuristics, and makes
// plans of them. Here each graph has one configuration and one plan. An execution is a line:
// stream, plan, and the id, address and bytes of each tensor in device memory.
#include <cstdio>
#include <cstring>
#include <cudnn.h>
#include <map>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "tests/gpu/recorder.h"

namespace {

using Extents = std::map<std::int64_t, std::int64_t>;  // bytes from a tensor's begin, by its id
using Words = std::vector<std::int64_t>;
constexpr std::int64_t kWorkspaceBytes = 512;  // of a plan

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  std::map<cudnnBackendAttributeName_t, Words> attributes;
  std::shared_ptr<const Extents> graph;  // of a graph, and of descriptors made from it
  std::uintptr_t number = 0;             // of a plan
};

Descriptor& descriptor(void* handle) {
  return *static_cast<Descriptor*>(handle);
}

struct Handle {
  cudaStream_t stream = nullptr;
};
Handle& handle_of(cudnnHandle_t handle) {
  return *reinterpret_cast<Handle*>(handle);
}

// The extents of the tensors that were finished after the last graph.
Extents& extents() {
  thread_local Extents extents;
  return extents;
}

// Numbers that are passed by value are on the host.
void add_extent(Descriptor& tensor) {
  auto& attributes = tensor.attributes;
  const auto by_value = attributes.find(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  if (by_value != attributes.end() && by_value->second[0] != 0) return;
  const Words& sizes = attributes.at(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const Words& strides = attributes.at(CUDNN_ATTR_TENSOR_STRIDES);
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    elements += (sizes[i] - 1) * strides[i];
  const bool is_bf16 = attributes.at(CUDNN_ATTR_TENSOR_DATA_TYPE)[0] == CUDNN_DATA_BFLOAT16;
  extents()[attributes.at(CUDNN_ATTR_TENSOR_UNIQUE_ID)[0]] = elements * (is_bf16 ? 2 : 4);
}

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    default: return 4;
  }
}

}  // namespace

extern "C" {

std::size_t cudnnGetVersion() {
  return CUDNN_VERSION;
}
const char* cudnnGetErrorString(cudnnStatus_t) {
  return "an error of the recorder";
}
void cudnnGetLastErrorString(char* message, std::size_t bytes) {
  if (bytes > 0) message[0] = 0;
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle);
  record("cudnnCreate");
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete &handle_of(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle_of(handle).stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = handle_of(handle).stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* made) {
  *made = new Descriptor{.type = type, .attributes = {}, .graph = nullptr};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
  delete &descriptor(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* elements) {
  auto& d = descriptor(handle);
  Words words(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < words.size(); ++i)
    std::memcpy(&words[i], static_cast<const char*>(elements) + i * bytes_of(type), bytes_of(type));
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && !words.empty())
    if (const auto& graph = descriptor(reinterpret_cast<void*>(words[0])).graph) d.graph = graph;
  d.attributes[name] = std::move(words);
  return CUDNN_STATUS_SUCCESS;
}
// Of all attributes, only the workspace of a plan and the number of results matter.
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t requested,
                                       std::int64_t* count, void* elements) {
  const bool is_result = name == CUDNN_ATTR_ENGINEHEUR_RESULTS;
  const bool is_number = type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_INT32;
  if (count != nullptr) *count = is_result || is_number ? 1 : 0;
  if (requested == 0) return CUDNN_STATUS_SUCCESS;
  if (is_result) descriptor(*static_cast<void**>(elements)).graph = descriptor(handle).graph;
  if (is_number) std::memset(elements, 0, bytes_of(type));
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
    *static_cast<std::int64_t*>(elements) = kWorkspaceBytes;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  auto& d = descriptor(handle);
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: add_extent(d); break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      d.graph = std::make_shared<Extents>(std::exchange(extents(), {}));
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      d.number = next_number();
      record("cudnnPlan %zu", d.number);
      break;
    default: break;
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  const auto& pack = descriptor(variant_pack).attributes;
  const Words& ids = pack.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const Words& addresses = pack.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::ostringstream out;
  const auto add = [&](std::int64_t id, std::int64_t address, std::int64_t bytes) {
    out << ' ' << std::dec << id << ":0x" << std::hex << address << ':' << std::dec << bytes;
  };
  const auto& graph = *descriptor(plan).graph;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (const auto extent = graph.find(ids[i]); extent != graph.end())
      add(ids[i], addresses[i], extent->second);
  add(0, pack.at(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)[0], kWorkspaceBytes);
  record("cudnnBackendExecute %p %zu%s", static_cast<void*>(handle_of(handle).stream),
         descriptor(plan).number, out.str().c_str());
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
