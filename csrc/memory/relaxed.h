// Calls that allocate, while another thread captures.
#pragma once

#include "driver/driver.h"

namespace vcc {

// They are allowed in relaxed mode only: that is the mode of this thread while one of these lives.
class Relaxed {
 public:
  Relaxed() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace vcc
