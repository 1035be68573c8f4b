// What cuBLASLt calls things: element types, forms of scales, statuses. And what a product is
// called.
#pragma once

#include <string>

#include "recorder/lt.h"

namespace vcc::recorder {

// cudaDataType of a dtype code. Throws Error(kUsage) for one that no product has.
int cuda_dtype(uint32_t code);

// How scales are called here and there: by table::Scales.
struct Form {
  const char* name;
  const char* mode;
  int w, a;  // cublasLtMatmulMatrixScale_t of each side
  const char* lacking;
};

// Of a product. Throws Error(kUsage) for an unknown one.
const Form& form_of(const Product& product);

// As cublasGetStatusName says it, which is another library's.
std::string status_name(int code);

// Sizes, and of a scaled product its type, its scales and whether it has a bias.
std::string shape_of(const Product& product);

}  // namespace vcc::recorder
