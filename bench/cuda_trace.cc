// SPDX-License-Identifier: Apache-2.0
//
// A library that CUDA loads into any program (CUDA_INJECTION64_PATH) and that writes what the GPU
// did into cuda_trace.tsv of the current folder: a line a kernel, copy or synchronisation with
// kind, begin and end in ns, stream, number of its graph (0: none) and name. See cuda_trace.py.
#include <cupti.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;

struct Output {
  std::mutex mutex;
  std::FILE* file = nullptr;
  size_t dropped = 0;
};
Output& Out() {
  static auto* out = new Output;  // used until the process ends
  return *out;
}

void Line(const char* kind, uint64_t begin, uint64_t end, uint32_t stream, uint32_t graph,
          const char* name) {
  std::fprintf(Out().file, "%s\t%" PRIu64 "\t%" PRIu64 "\t%u\t%u\t%s\n", kind, begin, end, stream,
               graph, name);
}

const char* NameOf(CUpti_ActivitySynchronizationType type) {
  switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
      return "event synchronize";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT:
      return "stream wait event (no wait on the host)";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
      return "stream synchronize";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE:
      return "context synchronize";
    default:
      return "unknown synchronization";
  }
}

void Write(const CUpti_Activity& record) {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& k = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
      return Line("kernel", k.start, k.end, k.streamId, k.graphId, k.name);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& m = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
      const char* name = m.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "host to device"
                         : m.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "device to host"
                                                                         : "other copy";
      return Line("copy", m.start, m.end, m.streamId, m.graphId, name);
    }
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
      const auto& s = reinterpret_cast<const CUpti_ActivitySynchronization2&>(record);
      return Line("sync", s.start, s.end, s.streamId, 0, NameOf(s.type));
    }
    default:
      return;
  }
}

void CUPTIAPI Give(uint8_t** buffer, size_t* size, size_t* most_records) {
  *size = kBufferBytes;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(ACTIVITY_RECORD_ALIGNMENT, kBufferBytes));
  *most_records = 0;
}

void CUPTIAPI Take(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(Out().mutex);
  CUpti_Activity* record = nullptr;
  while (Out().file != nullptr &&
         cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    Write(*record);
  }
  size_t dropped = 0;
  cuptiActivityGetNumDroppedRecords(context, stream, &dropped);
  Out().dropped += dropped;
  std::free(buffer);
}

void Finish() {
  cuptiActivityFlushAll(1);
  const std::lock_guard lock(Out().mutex);
  if (Out().dropped != 0) std::fprintf(stderr, "cuda_trace: %zu records lost\n", Out().dropped);
  std::fclose(Out().file);
  Out().file = nullptr;
}

}  // namespace

// CUDA calls it when a program makes its first call.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  Out().file = std::fopen("cuda_trace.tsv", "w");
  if (Out().file == nullptr) {
    std::perror("cuda_trace.tsv");
    return 0;
  }
  cuptiActivityRegisterCallbacks(Give, Take);
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION}) {
    if (cuptiActivityEnable(kind) != CUPTI_SUCCESS) {
      std::fprintf(stderr, "cuda_trace: the driver gives no trace (activity %d)\n",
                   static_cast<int>(kind));
    }
  }
  std::atexit(Finish);
  return 1;
}
