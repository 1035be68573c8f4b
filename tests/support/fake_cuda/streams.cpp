// Streams, events, capture, and the copies and memsets on streams.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "fake.h"

namespace fake {

namespace {

struct Event {
  bool recorded = false;
  std::chrono::steady_clock::time_point at;
  std::shared_ptr<Capture> capture;
  std::vector<Node*> last;
};

std::map<CUstream, std::unique_ptr<Stream>> streams;
std::map<CUevent, std::unique_ptr<Event>> events;
std::map<CUstream, std::shared_ptr<Capture>> captures;  // by the stream that began them
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult find_event(CUevent handle, Event** event) {
  const auto found = events.find(handle);
  if (found == events.end()) return CUDA_ERROR_INVALID_HANDLE;
  *event = found->second.get();
  return CUDA_SUCCESS;
}

CUresult copy_on(CUstream handle, CUdeviceptr to, CUdeviceptr from, size_t size, bool to_device,
                 bool from_device) {
  Stream* stream = nullptr;
  if (const CUresult failed = find(handle, &stream)) return failed;
  auto node = std::make_unique<Node>();
  node->type = CU_GRAPH_NODE_TYPE_MEMCPY;
  CUDA_MEMCPY3D& copy = node->memcpy;
  copy.srcMemoryType = from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  copy.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  copy.srcDevice = from_device ? from : 0;
  copy.srcHost = from_device ? nullptr : reinterpret_cast<const void*>(from);
  copy.dstDevice = to_device ? to : 0;
  copy.dstHost = to_device ? nullptr : reinterpret_cast<void*>(to);
  copy.WidthInBytes = size;
  copy.Height = copy.Depth = 1;
  return stream->capture ? record(*stream, std::move(node)) : run_memcpy(node->memcpy);
}

CUresult memset_on(CUstream handle, const CUDA_MEMSET_NODE_PARAMS& parameters) {
  Stream* stream = nullptr;
  if (const CUresult failed = find(handle, &stream)) return failed;
  auto node = std::make_unique<Node>();
  node->type = CU_GRAPH_NODE_TYPE_MEMSET;
  node->memset = parameters;
  return stream->capture ? record(*stream, std::move(node)) : run_memset(parameters);
}

}  // namespace

CUresult find(CUstream handle, Stream** stream) {
  if (handle == nullptr) {  // the default stream cannot be captured
    static auto* standard = new Stream();
    *stream = standard;
    return any_capture() && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED
               ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
               : CUDA_SUCCESS;
  }
  const auto found = streams.find(handle);
  if (found == streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  *stream = found->second.get();
  return CUDA_SUCCESS;
}

CUresult record(Stream& stream, std::unique_ptr<Node> node) {
  Node* made = nullptr;
  const CUresult result = add_node(*stream.capture->graph, std::move(node), stream.last, &made);
  if (result == CUDA_SUCCESS) stream.last = {made};
  return result;
}

bool any_capture() { return !captures.empty(); }

void reset_streams() {
  streams.clear();
  events.clear();
  captures.clear();
}

}  // namespace fake

using namespace fake;

#define ENTER(name)                    \
  const std::lock_guard guard(lock()); \
  if (const CUresult refused = enter(name)) return refused
#define STREAM(handle)      \
  Stream* stream = nullptr; \
  if (const CUresult failed = find(handle, &stream)) return failed

FAKE_API CUresult cuStreamCreate(CUstream* handle, unsigned) {
  ENTER("cuStreamCreate");
  auto made = std::make_unique<Stream>();
  *handle = reinterpret_cast<CUstream>(made.get());
  streams[*handle] = std::move(made);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamDestroy_v2(CUstream handle) {
  ENTER("cuStreamDestroy");
  return streams.erase(handle) == 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamSynchronize(CUstream handle) {
  ENTER("cuStreamSynchronize");
  STREAM(handle);
  return stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamQuery(CUstream handle) {
  ENTER("cuStreamQuery");
  STREAM(handle);
  return stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  ENTER("cuStreamWaitEvent");
  STREAM(handle);
  Event* event = nullptr;
  if (const CUresult failed = find_event(event_handle, &event)) return failed;
  if (!event->capture) return CUDA_SUCCESS;
  if (stream->capture && stream->capture != event->capture) return CUDA_ERROR_INVALID_VALUE;
  stream->capture = event->capture;
  for (Node* node : event->last) {
    if (std::find(stream->last.begin(), stream->last.end(), node) == stream->last.end()) {
      stream->last.push_back(node);
    }
  }
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode) {
  ENTER("cuStreamBeginCapture");
  STREAM(handle);
  if (handle == nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_INVALID_VALUE;
  stream->capture = captures[handle] = std::make_shared<Capture>();
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  ENTER("cuStreamEndCapture");
  STREAM(handle);
  const auto found = captures.find(handle);
  if (found == captures.end()) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Capture> capture = found->second;
  captures.erase(found);
  for (auto& [_, other] : streams) {
    if (other->capture == capture) {
      other->capture = nullptr;
      other->last.clear();
    }
  }
  *graph = adopt(std::move(capture->graph));
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  ENTER("cuStreamIsCapturing");
  STREAM(handle);
  *status = stream->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  ENTER("cuThreadExchangeStreamCaptureMode");
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuEventCreate(CUevent* handle, unsigned) {
  ENTER("cuEventCreate");
  auto made = std::make_unique<Event>();
  *handle = reinterpret_cast<CUevent>(made.get());
  events[*handle] = std::move(made);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuEventDestroy_v2(CUevent handle) {
  ENTER("cuEventDestroy");
  return events.erase(handle) == 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

FAKE_API CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  ENTER("cuEventRecord");
  STREAM(stream_handle);
  Event* event = nullptr;
  if (const CUresult failed = find_event(handle, &event)) return failed;
  event->recorded = true;
  event->at = std::chrono::steady_clock::now();
  event->capture = stream->capture;
  event->last = stream->last;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuEventQuery(CUevent handle) {
  ENTER("cuEventQuery");
  Event* event = nullptr;
  return find_event(handle, &event);
}

FAKE_API CUresult cuEventSynchronize(CUevent handle) {
  ENTER("cuEventSynchronize");
  Event* event = nullptr;
  return find_event(handle, &event);
}

FAKE_API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  ENTER("cuEventElapsedTime");
  Event *first = nullptr, *last = nullptr;
  if (const CUresult failed = find_event(start, &first)) return failed;
  if (const CUresult failed = find_event(end, &last)) return failed;
  if (!first->recorded || !last->recorded) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = std::chrono::duration<float, std::milli>(last->at - first->at).count();
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  {
    ENTER("cuLaunchHostFunc");
    STREAM(handle);
    if (stream->capture) {
      auto node = std::make_unique<Node>();
      node->type = CU_GRAPH_NODE_TYPE_HOST;
      return record(*stream, std::move(node));
    }
  }
  function(data);
  return CUDA_SUCCESS;
}

static CUdeviceptr as_address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

FAKE_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t size) {
  ENTER("cuMemcpyHtoD");
  return copy_on(nullptr, to, as_address(from), size, true, false);
}

FAKE_API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t size) {
  ENTER("cuMemcpyDtoH");
  return copy_on(nullptr, as_address(to), from, size, false, true);
}

FAKE_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size, CUstream s) {
  ENTER("cuMemcpyHtoDAsync");
  return copy_on(s, to, as_address(from), size, true, false);
}

FAKE_API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size, CUstream s) {
  ENTER("cuMemcpyDtoHAsync");
  return copy_on(s, as_address(to), from, size, false, true);
}

FAKE_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s) {
  ENTER("cuMemcpyDtoDAsync");
  return copy_on(s, to, from, size, true, true);
}

#define MEMSET(name, type, bytes)                                                              \
  FAKE_API CUresult cuMemsetD##name##Async(CUdeviceptr to, type value, size_t n, CUstream s) { \
    ENTER("cuMemsetD" #name "Async");                                                          \
    return memset_on(s, {to, n * bytes, value, bytes, n, 1});                                  \
  }                                                                                            \
  FAKE_API CUresult cuMemsetD2D##name##Async(CUdeviceptr to, size_t pitch, type value,         \
                                             size_t width, size_t height, CUstream s) {        \
    ENTER("cuMemsetD2D" #name "Async");                                                        \
    return memset_on(s, {to, pitch, value, bytes, width, height});                             \
  }
MEMSET(8, unsigned char, 1)
MEMSET(16, unsigned short, 2)
MEMSET(32, unsigned, 4)
