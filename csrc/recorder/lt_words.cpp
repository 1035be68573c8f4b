#include "recorder/lt_words.h"

#include <iterator>

#include "abi/error.h"

namespace vcc::recorder {

namespace {

// As of library_types.h.
constexpr struct {
  uint32_t code;
  int cuda;
} kDtypes[] = {{1, 0}, {2, 2}, {3, 14}, {4, 28}};

constexpr Form kForms[] = {
    {"", "", 0, 0, nullptr},
    {"tensor", "SCALAR_32F", 0, 0, nullptr},
    {"rows", "OUTER_VEC_32F", 3, 3, nullptr},
    {"blocks", "BLK128x128_32F and VEC128_32F", 5, 4, nullptr},
    {"mixed", "OUTER_VEC_32F and SCALAR_32F", 3, 0,
     "it has one number for each side, or a number for each row of both"},
};

}  // namespace

int cuda_dtype(uint32_t code) {
  for (const auto& pair : kDtypes) {
    if (pair.code == code) return pair.cuda;
  }
  throw Error(Code::kUsage, "a product of this element type cannot be recorded",
              "dtype code " + std::to_string(code),
              "float32, float16 and bfloat16 can, and float8_e4m3fn with scales");
}

const Form& form_of(const Product& product) {
  if (product.scales < std::size(kForms)) return kForms[product.scales];
  throw Error(Code::kUsage, "a product with these scales cannot be recorded",
              "code " + std::to_string(product.scales));
}

std::string status_name(int code) {
  constexpr struct {
    int code;
    const char* name;
  } kNames[] = {{1, "NOT_INITIALIZED"}, {3, "ALLOC_FAILED"},   {7, "INVALID_VALUE"},
                {8, "ARCH_MISMATCH"},   {11, "MAPPING_ERROR"}, {13, "EXECUTION_FAILED"},
                {14, "INTERNAL_ERROR"}, {15, "NOT_SUPPORTED"}, {16, "LICENSE_ERROR"}};
  for (const auto& one : kNames) {
    if (one.code == code) return std::string("CUBLAS_STATUS_") + one.name;
  }
  return "status " + std::to_string(code);
}

std::string shape_of(const Product& product) {
  const Form& form = form_of(product);
  const std::string sizes =
      std::to_string(product.m) + "x" + std::to_string(product.n) + "x" + std::to_string(product.k);
  if (product.scales == 0) return sizes;
  return sizes + " of fp8 into dtype " + std::to_string(product.out) + ", scales: " + form.name +
         " (" + form.mode + ")" + (product.has_c ? ", with a bias" : "");
}

}  // namespace vcc::recorder
