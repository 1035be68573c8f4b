// Every function of libcuda that vcc calls, once: X(member, symbol, since, arguments). `symbol` is
// the exported name of the version whose arguments these are; `since` is the first CUDA version
// whose driver has it, for the message about an older one.
#pragma once

#define VCC_CUDA_FUNCTIONS(X)                                                                     \
  X(cuInit, cuInit, 2000, (unsigned flags))                                                       \
  X(cuDriverGetVersion, cuDriverGetVersion, 2020, (int* version))                                 \
  X(cuGetErrorName, cuGetErrorName, 6000, (CUresult result, const char** name))                   \
  X(cuGetErrorString, cuGetErrorString, 6000, (CUresult result, const char** text))               \
  /* devices and contexts */                                                                      \
  X(cuDeviceGet, cuDeviceGet, 2000, (CUdevice * device, int ordinal))                             \
  X(cuDeviceGetCount, cuDeviceGetCount, 2000, (int* count))                                       \
  X(cuDeviceGetName, cuDeviceGetName, 2000, (char* name, int size, CUdevice device))              \
  X(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040, (CUuuid * uuid, CUdevice device))                 \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, (size_t* bytes, CUdevice device))                \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000,                                             \
    (int* value, CUdevice_attribute attribute, CUdevice device))                                  \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000,                                     \
    (CUcontext * context, CUdevice device))                                                       \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, (CUdevice device))            \
  X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (CUcontext context))                                  \
  X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, (CUcontext * context))                                \
  X(cuCtxSynchronize, cuCtxSynchronize, 2000, ())                                                 \
  /* memory */                                                                                    \
  X(cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t* free, size_t* total))                           \
  X(cuMemAlloc, cuMemAlloc_v2, 3020, (CUdeviceptr * address, size_t size))                        \
  X(cuMemFree, cuMemFree_v2, 3020, (CUdeviceptr address))                                         \
  X(cuMemHostAlloc, cuMemHostAlloc, 2020, (void** address, size_t size, unsigned flags))          \
  X(cuMemFreeHost, cuMemFreeHost, 2000, (void* address))                                          \
  X(cuMemHostRegister, cuMemHostRegister_v2, 6050, (void* address, size_t size, unsigned flags))  \
  X(cuMemHostUnregister, cuMemHostUnregister, 4000, (void* address))                              \
  X(cuMemAddressReserve, cuMemAddressReserve, 10020,                                              \
    (CUdeviceptr * address, size_t size, size_t alignment, CUdeviceptr wanted,                    \
     unsigned long long flags))                                                                   \
  X(cuMemAddressFree, cuMemAddressFree, 10020, (CUdeviceptr address, size_t size))                \
  X(cuMemCreate, cuMemCreate, 10020,                                                              \
    (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp* properties,   \
     unsigned long long flags))                                                                   \
  X(cuMemRelease, cuMemRelease, 10020, (CUmemGenericAllocationHandle handle))                     \
  X(cuMemMap, cuMemMap, 10020,                                                                    \
    (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,        \
     unsigned long long flags))                                                                   \
  X(cuMemUnmap, cuMemUnmap, 10020, (CUdeviceptr address, size_t size))                            \
  X(cuMemSetAccess, cuMemSetAccess, 10020,                                                        \
    (CUdeviceptr address, size_t size, const CUmemAccessDesc* access, size_t count))              \
  X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020,                          \
    (size_t* size, const CUmemAllocationProp* properties, int option))                            \
  X(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020, (CUdeviceptr to, const void* from, size_t size))         \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020, (void* to, CUdeviceptr from, size_t size))               \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020,                                                \
    (CUdeviceptr to, const void* from, size_t size, CUstream stream))                             \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020,                                                \
    (void* to, CUdeviceptr from, size_t size, CUstream stream))                                   \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020,                                                \
    (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream))                             \
  X(cuMemsetD8Async, cuMemsetD8Async, 3020,                                                       \
    (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))                         \
  X(cuMemsetD16Async, cuMemsetD16Async, 3020,                                                     \
    (CUdeviceptr to, unsigned short value, size_t count, CUstream stream))                        \
  X(cuMemsetD32Async, cuMemsetD32Async, 3020,                                                     \
    (CUdeviceptr to, unsigned value, size_t count, CUstream stream))                              \
  X(cuMemsetD2D8Async, cuMemsetD2D8Async, 3020,                                                   \
    (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,              \
     CUstream stream))                                                                            \
  X(cuMemsetD2D16Async, cuMemsetD2D16Async, 3020,                                                 \
    (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,             \
     CUstream stream))                                                                            \
  X(cuMemsetD2D32Async, cuMemsetD2D32Async, 3020,                                                 \
    (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream)) \
  X(cuPointerGetAttribute, cuPointerGetAttribute, 4000,                                           \
    (void* value, CUpointer_attribute attribute, CUdeviceptr address))                            \
  /* streams and events */                                                                        \
  X(cuStreamCreate, cuStreamCreate, 2000, (CUstream * stream, unsigned flags))                    \
  X(cuStreamDestroy, cuStreamDestroy_v2, 4000, (CUstream stream))                                 \
  X(cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream stream))                            \
  X(cuStreamQuery, cuStreamQuery, 2000, (CUstream stream))                                        \
  X(cuStreamWaitEvent, cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned flags)) \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010,                                         \
    (CUstream stream, CUstreamCaptureMode mode))                                                  \
  X(cuStreamEndCapture, cuStreamEndCapture, 10000, (CUstream stream, CUgraph * graph))            \
  X(cuStreamIsCapturing, cuStreamIsCapturing, 10000,                                              \
    (CUstream stream, CUstreamCaptureStatus * status))                                            \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010,                  \
    (CUstreamCaptureMode * mode))                                                                 \
  X(cuEventCreate, cuEventCreate, 2000, (CUevent * event, unsigned flags))                        \
  X(cuEventDestroy, cuEventDestroy_v2, 4000, (CUevent event))                                     \
  X(cuEventRecord, cuEventRecord, 2000, (CUevent event, CUstream stream))                         \
  X(cuEventQuery, cuEventQuery, 2000, (CUevent event))                                            \
  X(cuEventSynchronize, cuEventSynchronize, 2000, (CUevent event))                                \
  X(cuEventElapsedTime, cuEventElapsedTime, 2000,                                                 \
    (float* milliseconds, CUevent start, CUevent end))                                            \
  /* code */                                                                                      \
  X(cuModuleLoadData, cuModuleLoadData, 2000, (CUmodule * module, const void* image))             \
  X(cuModuleUnload, cuModuleUnload, 2000, (CUmodule module))                                      \
  X(cuModuleGetFunction, cuModuleGetFunction, 2000,                                               \
    (CUfunction * function, CUmodule module, const char* name))                                   \
  X(cuFuncGetAttribute, cuFuncGetAttribute, 2020,                                                 \
    (int* value, CUfunction_attribute attribute, CUfunction function))                            \
  X(cuFuncSetAttribute, cuFuncSetAttribute, 9000,                                                 \
    (CUfunction function, CUfunction_attribute attribute, int value))                             \
  X(cuFuncGetModule, cuFuncGetModule, 11000, (CUmodule * module, CUfunction function))            \
  X(cuFuncGetName, cuFuncGetName, 12030, (const char** name, CUfunction function))                \
  X(cuFuncGetParamInfo, cuFuncGetParamInfo, 12040,                                                \
    (CUfunction function, size_t index, size_t* offset, size_t* size))                            \
  X(cuKernelGetFunction, cuKernelGetFunction, 12000, (CUfunction * function, CUkernel kernel))    \
  X(cuLaunchKernel, cuLaunchKernel, 4000,                                                         \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,    \
     unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** parameters,     \
     void** extra))                                                                               \
  X(cuLaunchKernelEx, cuLaunchKernelEx, 11060,                                                    \
    (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra))         \
  X(cuLaunchHostFunc, cuLaunchHostFunc, 10000, (CUstream stream, CUhostFn function, void* data))  \
  /* graphs */                                                                                    \
  X(cuGraphCreate, cuGraphCreate, 10000, (CUgraph * graph, unsigned flags))                       \
  X(cuGraphDestroy, cuGraphDestroy, 10000, (CUgraph graph))                                       \
  X(cuGraphAddKernelNode, cuGraphAddKernelNode_v2, 12000,                                         \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t count,                   \
     const CUDA_KERNEL_NODE_PARAMS* parameters))                                                  \
  X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000,                                            \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t count,                   \
     const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext context))                               \
  X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000,                                            \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t count,                   \
     const CUDA_MEMCPY3D* parameters, CUcontext context))                                         \
  X(cuGraphAddEmptyNode, cuGraphAddEmptyNode, 10000,                                              \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t count))                  \
  X(cuGraphAddDependencies, cuGraphAddDependencies_v2, 12030,                                     \
    (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,  \
     size_t count))                                                                               \
  X(cuGraphGetNodes, cuGraphGetNodes, 10000, (CUgraph graph, CUgraphNode * nodes, size_t* count)) \
  X(cuGraphGetEdges, cuGraphGetEdges_v2, 12030,                                                   \
    (CUgraph graph, CUgraphNode * from, CUgraphNode * to, CUgraphEdgeData * data, size_t* count)) \
  X(cuGraphNodeGetType, cuGraphNodeGetType, 10000, (CUgraphNode node, CUgraphNodeType * type))    \
  X(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2, 12000,                             \
    (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS * parameters))                                     \
  X(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2, 12000,                             \
    (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters))                                \
  X(cuGraphKernelNodeGetAttribute, cuGraphKernelNodeGetAttribute, 11000,                          \
    (CUgraphNode node, CUlaunchAttributeID id, CUlaunchAttributeValue * value))                   \
  X(cuGraphKernelNodeSetAttribute, cuGraphKernelNodeSetAttribute, 11000,                          \
    (CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue* value))              \
  X(cuGraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, 10000,                                \
    (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS * parameters))                                     \
  X(cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeGetParams, 10000,                                \
    (CUgraphNode node, CUDA_MEMCPY3D * parameters))                                               \
  X(cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000,                          \
    (CUgraphNode node, CUgraph * graph))                                                          \
  X(cuGraphInstantiate, cuGraphInstantiateWithFlags, 11040,                                       \
    (CUgraphExec * executable, CUgraph graph, unsigned long long flags))                          \
  X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, 12000,                     \
    (CUgraphExec executable, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters))        \
  X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (CUgraphExec executable))                      \
  X(cuGraphUpload, cuGraphUpload, 11010, (CUgraphExec executable, CUstream stream))               \
  X(cuGraphLaunch, cuGraphLaunch, 10000, (CUgraphExec executable, CUstream stream))

namespace vcc {

// The first CUDA version whose driver has every function above; engine/config/target.py says the
// same to builds (OLDEST_DRIVER), and a test compares the two.
constexpr int oldest_driver() {
  int newest = 0;
#define VCC_CUDA_NEWEST(member, symbol, since, arguments) newest = since > newest ? since : newest;
  VCC_CUDA_FUNCTIONS(VCC_CUDA_NEWEST)
#undef VCC_CUDA_NEWEST
  return newest;
}

}  // namespace vcc
