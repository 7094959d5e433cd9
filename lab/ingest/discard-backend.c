/* Triton backend that computes nothing: returns zeros without reading the input, so that a request costs only what Triton spends on it. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

/* Part of Triton's C API for backends (tritonbackend.h, tritonserver.h), which is stable within major version 1. */
typedef void *Handle;
enum { TYPE_FP32 = 11, RESPONSE_FINAL = 1, RELEASE_ALL = 1, MEMORY_CPU = 0 };
Handle TRITONBACKEND_RequestInputByIndex(Handle request, uint32_t index, Handle *input);
Handle TRITONBACKEND_InputProperties(Handle input, const char **name, int *type, const int64_t **shape,
                                     uint32_t *dims, uint64_t *bytes, uint32_t *buffers);
Handle TRITONBACKEND_ResponseNew(Handle *response, Handle request);
Handle TRITONBACKEND_ResponseOutput(Handle response, Handle *output, const char *name, int type, const int64_t *shape,
                                    uint32_t dims);
Handle TRITONBACKEND_OutputBuffer(Handle output, void **buffer, uint64_t bytes, int *memory, int64_t *memory_id);
Handle TRITONBACKEND_ResponseSend(Handle response, uint32_t flags, Handle error);
Handle TRITONBACKEND_RequestRelease(Handle request, uint32_t flags);
Handle TRITONBACKEND_ModelInstanceReportStatistics(Handle instance, Handle request, int success, uint64_t start,
                                                   uint64_t compute_start, uint64_t compute_end, uint64_t end);

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static Handle respond(Handle request, Handle *response) {
  const int width = 512;
  Handle input, output, error;
  const char *name;
  int type, memory = MEMORY_CPU;
  const int64_t *shape;
  uint32_t dims, buffers;
  uint64_t bytes;
  int64_t memory_id = 0;
  void *buffer;
  if ((error = TRITONBACKEND_RequestInputByIndex(request, 0, &input))) return error;
  if ((error = TRITONBACKEND_InputProperties(input, &name, &type, &shape, &dims, &bytes, &buffers))) return error;
  const int64_t output_shape[] = {shape[0], width};
  if ((error = TRITONBACKEND_ResponseOutput(*response, &output, "embedding", TYPE_FP32, output_shape, 2))) return error;
  const uint64_t size = (uint64_t)shape[0] * width * sizeof(float);
  if ((error = TRITONBACKEND_OutputBuffer(output, &buffer, size, &memory, &memory_id))) return error;
  memset(buffer, 0, size);
  return NULL;
}

__attribute__((visibility("default"))) Handle TRITONBACKEND_ModelInstanceExecute(Handle instance, Handle *requests,
                                                                                  const uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const uint64_t start = now_ns();
    Handle response;
    Handle error = TRITONBACKEND_ResponseNew(&response, requests[i]);
    if (error == NULL) {
      error = respond(requests[i], &response);
      TRITONBACKEND_ResponseSend(response, RESPONSE_FINAL, error);
    }
    const uint64_t end = now_ns();
    TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], error == NULL, start, start, end, end);
    TRITONBACKEND_RequestRelease(requests[i], RELEASE_ALL);
  }
  return NULL;
}
