// One step of any size in the table's ranges: inputs sent, graphs and kernels launched, results
// read back.
#include "abi/error.h"
#include "driver/driver.h"
#include "player/player.h"

namespace vcc {

uint32_t Player::acquire_slot() {
  const Hold hold(*this);
  must_be_placed("a slot is asked for after the memory is placed");
  device_->use();
  return inputs_->acquire();
}

void Player::step(const StepCall& call) {
  const Hold hold(*this);
  must_be_placed("a step runs after the memory is placed");
  VCC_EXPECT(call.slot < inputs_->slots(), "an input slot");
  enter();
  check_rows(call.rows, call.step.seqs);
  const Prepared& ready = prepared(call.mode, call.step);
  inputs_->send(call.slot, inputs_->copies(call.inputs, ready.values), stream_);
  run(ready);
  read_back(call, ready);
  ++times_.steps;
  if ((call.flags & kDoNotWait) != 0) return;
  VCC_CU(cuEventRecord(done_, stream_));
  wait_for(done_);
}

void Player::check_rows(uint32_t rows, int64_t seqs) const {
  if (rows > seqs) {
    throw Error(Code::kUsage, "a step of " + std::to_string(seqs) + " sequences cannot run",
                "it is asked for the results of " + std::to_string(rows));
  }
}

void Player::run(const Prepared& ready) {
  for (const Prepared::Action& action : ready.actions) {
    if (action.graph != nullptr) {
      action.graph->launch(stream_);
      ++times_.graph_launches;
    } else {
      launch_plainly(ready.expansion, action.first, action.count, stream_);
      times_.plain_launches += action.count;
    }
  }
}

void Player::read_back(const StepCall& call, const Prepared& ready) {
  if ((call.flags & kReadLogits) != 0) {
    const table::Tensor* logits = table_.find_tensor("logits");
    VCC_EXPECT(logits != nullptr, "the table has an output called logits");
    const auto all = bytes_of(table_.records(), *logits, ready.values);
    const uint64_t bytes = all / static_cast<uint64_t>(call.step.seqs) * call.rows;
    if (bytes > logits_.bytes()) logits_ = Pinned(bytes);
    VCC_CU(cuMemcpyDtoHAsync(logits_.data(), address_of(*logits, ready.values), bytes, stream_));
  }
  if ((call.flags & kReadTokens) != 0) {
    const Input* token = inputs_->find("token");
    VCC_EXPECT(token != nullptr, "the table samples");
    VCC_CU(cuMemcpyDtoHAsync(ring_.data(), token->device, call.rows * sizeof(int32_t), stream_));
  }
}

}  // namespace vcc
