// What a player says about itself, as JSON.
#include <string>

#include "player/player.h"
#include "recorder/json.h"

namespace vcc {
namespace {

using recorder::Json;

constexpr const char* kRoles[] = {"input", "output", "weight", "constant", "cache", "state"};
constexpr const char* kFullEdges =
    "the driver gave these programmatic edges back as full ones: the second kernel waits for the "
    "end of the first, results are the same";
constexpr const char* kRoutes[] = {"none", "store", "triton"};

void write_tensor(Json& json, const Table& table, const table::Tensor& tensor, uint64_t address,
                  const std::vector<int64_t>& values, const Input* input) {
  const auto& records = table.records();
  json.open('{');
  json.name("name").text(table.text(tensor.name));
  json.name("target").text(table.text(tensor.target));
  json.name("role").text(kRoles[static_cast<uint32_t>(tensor.role)]);
  json.name("dtype").number(tensor.dtype);
  json.name("address").number(address);
  json.name("bytes").number(bytes_of(records, tensor, values));
  json.name("shape").open('[');
  for (const uint32_t dim : records.lists.subspan(tensor.first_dim, tensor.dims)) {
    json.number_signed(values[dim]);
  }
  json.close(']');
  if (input != nullptr) json.name("slot").number(input->host);
  json.close('}');
}

}  // namespace

std::string Player::describe_weights() {
  const Hold hold(*this);
  VCC_EXPECT(weights_, "weights are described after they are placed");
  const Expander expander(table_, shapes_, places_, gemms_, least_blocks());
  const auto& values = expander.largest();
  Json json;
  json.open('{').name("address").number(weights_->address);
  json.name("bytes").number(weights_->bytes).name("tensors").open('[');
  for (const auto& tensor : table_.tensors()) {
    if (table_.regions()[tensor.region].kind != table::RegionKind::kWeights) continue;
    const auto offset = static_cast<uint64_t>(values[tensor.offset]);
    write_tensor(json, table_, tensor, weights_->address + offset, values, nullptr);
  }
  return json.close(']').close('}').take();
}

std::string Player::describe() {
  const Hold hold(*this);
  must_be_placed("a player is described after the memory is placed");
  const auto& values = expander_->largest();
  Json json;
  json.open('{').name("tensors").open('[');
  for (uint32_t i = 0; i < table_.tensors().size(); ++i) {
    const auto& tensor = table_.tensors()[i];
    const Input* input = nullptr;
    for (const Input& one : inputs_->inputs()) input = one.tensor == i ? &one : input;
    write_tensor(json, table_, tensor, address_of(tensor, values), values, input);
  }
  json.close(']').name("regions").open('[');
  for (uint32_t i = 0; i < table_.regions().size(); ++i) {
    json.open('{').name("kind").number(static_cast<uint32_t>(table_.regions()[i].kind));
    json.name("address").number(places_[i].address);
    json.name("bytes").number(places_[i].bytes).close('}');
  }
  json.close(']').name("symbols").open('{');
  for (const auto& symbol : table_.symbols()) {
    json.name(table_.text(symbol.name)).open('[').number_signed(symbol.low);
    json.number_signed(symbol.high).close(']');
  }
  uint64_t kinds[4] = {};
  for (const auto& segment : table_.segments()) ++kinds[static_cast<uint32_t>(segment.kind)];
  json.close('}').name("segments").open('[');
  for (const uint64_t count : kinds) json.number(count);
  json.close(']').name("nodes").number(table_.nodes().size());
  json.name("slots").open('[');
  for (uint32_t i = 0; i < inputs_->slots(); ++i) {
    json.number(reinterpret_cast<uintptr_t>(inputs_->at(i)));
  }
  json.close(']').name("slot_bytes").number(inputs_->slot_bytes());
  json.name("ring").number(reinterpret_cast<uintptr_t>(ring_.data()));
  json.name("ring_steps").number(ring_steps_).name("ring_width").number(ring_width_);
  json.name("blocks")
      .number_signed(blocks_)
      .name("mapped_blocks")
      .number_signed(first_ == nullptr ? mapped_ : first_->mapped_);
  return json.close('}').take();
}

std::string Player::gemms(int64_t tokens, int64_t seqs) {
  const Hold hold(*this);
  must_be_placed("products are asked for after the memory is placed");
  const auto values = expander_->values({tokens, seqs});
  const auto& records = table_.records();
  Json json;
  json.open('[');
  for (uint32_t n = 0; n < records.nodes.size(); ++n) {
    const auto& node = records.nodes[n];
    if (node.kind != table::NodeKind::kGemm) continue;
    const auto& gemm = records.gemms[node.target];
    const GemmChoice choice = gemms_.choose(gemm, values[gemm.m], expander_->largest()[gemm.m]);
    json.open('{').name("node").number(n).name("m").number_signed(values[gemm.m]);
    json.name("n").number(gemm.n).name("k").number(gemm.k).name("dtype").number(gemm.dtype);
    json.name("c").number(gemm.flags & table::kAddsC);
    json.name("out").number(gemm.out).name("scales").text(scales_text(gemm.scales));
    json.name("route").text(kRoutes[static_cast<uint32_t>(choice.route)]);
    json.name("rows").number_signed(choice.rows).name("variant").number(choice.variant).close('}');
  }
  return json.close(']').take();
}

std::string Player::stats() {
  const EdgeCounts edges = graphs_ == nullptr ? EdgeCounts() : graphs_->counts().edges;
  Json json;
  json.open('{');
  const std::pair<const char*, uint64_t> numbers[] = {
      {"modules_ns", modules_ns_.load()},
      {"supply_ns", supply_ns_.load()},
      {"place_ns", times_.place},
      {"hot_ns", times_.hot},
      {"prepare_ns", times_.prepare},
      {"steps", times_.steps},
      {"graph_launches", times_.graph_launches},
      {"plain_launches", times_.plain_launches},
      {"prepared", times_.prepared},
      {"kept_bytes", kept_bytes_},
      {"modules", modules_->modules()},
      {"programmatic_edges", edges.programmatic},
      {"full_edges", edges.full},
  };
  for (const auto& [name, value] : numbers) json.name(name).number(value);
  if (edges.full != 0) json.name("full_edges_why").text(kFullEdges);
  return json.close('}').take();
}

}  // namespace vcc
