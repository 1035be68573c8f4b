// Integer expressions of a step's sizes.
#pragma once

#include <algorithm>
#include <span>

#include "table/format.h"

namespace vcc::table {

// The value of an operation. No check: what a table holds after reading has operands of zero and
// more, divides by positive constants, and stays within 63 bits for all sizes that it declares.
inline int64_t apply(Op op, int64_t a, int64_t b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kMul:
      return a * b;
    case Op::kFloorDiv:
      return a / b;
    case Op::kMod:
      return a % b;
    case Op::kMin:
      return std::min(a, b);
    case Op::kMax:
      return std::max(a, b);
    case Op::kCeilDiv:
      return a / b + (a % b != 0);
    default:
      return 0;
  }
}

// What the value of an operation never exceeds, of what its operands never exceed: every operation
// grows with its operands, but a remainder may be largest where they are not.
inline int64_t most(Op op, int64_t a, int64_t b) {
  return op == Op::kMod ? std::min(a, b - 1) : apply(op, a, b);
}

template <class Operation>
void evaluate_by(std::span<const Expr> exprs, std::span<const int64_t> sizes, int64_t* values,
                 const Operation& operation) {
  int64_t* next = values;
  for (const Expr& expr : exprs) {
    if (expr.op == Op::kConst) {
      *next++ = expr.b;
    } else if (expr.op == Op::kSymbol) {
      *next++ = sizes[expr.a];
    } else {
      *next++ = operation(expr.op, values[expr.a], values[expr.b]);
    }
  }
}

// The values of all expressions at these sizes, one for each symbol in order, into `values` of
// the same length as `exprs`. The sizes lie in the ranges of their symbols.
inline void evaluate(std::span<const Expr> exprs, std::span<const int64_t> sizes, int64_t* values) {
  evaluate_by(exprs, sizes, values, apply);
}

// What no value exceeds at these sizes or smaller ones.
inline void evaluate_most(std::span<const Expr> exprs, std::span<const int64_t> sizes,
                          int64_t* values) {
  evaluate_by(exprs, sizes, values, most);
}

}  // namespace vcc::table
