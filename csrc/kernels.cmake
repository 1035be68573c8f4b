# The CUDA kernels of kernels/*.cu: one cubin an operator and architecture, with an index.
#
#   VCC_KERNELS        AUTO compiles them where nvcc works; OFF leaves them out
#   VCC_KERNEL_ARCHS   architectures, sm_90a by default; make cross compiles all that are supported
#
# Without them vcc works: forward_cuda is not available, and Triton's kernels or plain torch are used.
set(VCC_KERNELS AUTO CACHE STRING "compile the CUDA kernels: AUTO or OFF")
set(VCC_KERNEL_ARCHS "sm_90a" CACHE STRING "architectures to compile CUDA kernels for")
set(without "Operators run as Triton's kernels or in plain torch instead")
if(NOT VCC_KERNELS STREQUAL "AUTO")
  message(STATUS "vcc: without CUDA kernels, as VCC_KERNELS is ${VCC_KERNELS}: forward_cuda is not available")
  return()
endif()

find_program(VCC_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin
  PATHS /usr/local/cuda)
if(NOT VCC_NVCC)
  message(WARNING
    "vcc: no nvcc found: installing without CUDA kernels, forward_cuda is not available. ${without}. "
    "Put nvcc of CUDA 12 or later on PATH and reinstall to change that.")
  return()
endif()

# An nvcc that is too old, or that does not know this host compiler, must not break the install.
list(GET VCC_KERNEL_ARCHS 0 first)
string(REPLACE "sm_" "compute_" virtual "${first}")
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/probe.cu" "__global__ void probe() {}\n")
execute_process(
  COMMAND "${VCC_NVCC}" -cubin -std=c++20 "-gencode=arch=${virtual},code=${first}"
    -o "${CMAKE_CURRENT_BINARY_DIR}/probe.cubin" "${CMAKE_CURRENT_BINARY_DIR}/probe.cu"
  RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(failed)
  string(STRIP "${said}" said)
  message(WARNING
    "vcc: ${VCC_NVCC} cannot compile for ${first}: installing without CUDA kernels, forward_cuda is "
    "not available. ${without}. Put nvcc of CUDA 12 or later on PATH and reinstall to change "
    "that. It says: ${said}")
  return()
endif()

file(GLOB sources CONFIGURE_DEPENDS
  "${CMAKE_CURRENT_SOURCE_DIR}/kernels/*.cu" "${CMAKE_CURRENT_SOURCE_DIR}/kernels/*.cuh")
list(APPEND sources "${CMAKE_CURRENT_SOURCE_DIR}/kernels/compile.py" "${VCC_ROOT}/engine/graphs/cubin.py")
foreach(arch ${VCC_KERNEL_ARCHS})
  set(index "${CMAKE_CURRENT_BINARY_DIR}/kernels/${arch}/index.json")
  add_custom_command(OUTPUT "${index}"
    COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/kernels/compile.py"
      --nvcc "${VCC_NVCC}" --out "${CMAKE_CURRENT_BINARY_DIR}/kernels" "${arch}"
    DEPENDS ${sources}
    COMMENT "CUDA kernels for ${arch}"
    VERBATIM)
  list(APPEND indexes "${index}")
endforeach()
add_custom_target(vcc_kernels ALL DEPENDS ${indexes})
install(DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/kernels" DESTINATION vcc/_lib
  FILES_MATCHING PATTERN "*.cubin" PATTERN "index.json")
