#include "player/abi.h"

#include <algorithm>

#include "abi/handles.h"
#include "player/player.h"

namespace vcc {
namespace {

Handles<Player>& players() {
  static auto* table = new Handles<Player>("player");  // never freed: threads may outlive main
  return *table;
}

template <class T>
std::span<const T> array(const void* first, uint64_t count) {
  return {static_cast<const T*>(first), count};
}

Mode mode_of(uint32_t mode) {
  VCC_EXPECT(mode <= static_cast<uint32_t>(Mode::kPiecewise), "a mode");
  return static_cast<Mode>(mode);
}

uint16_t dtype_of(uint32_t code) {
  VCC_EXPECT(code < table::kDtypes, "a dtype");
  return static_cast<uint16_t>(code);
}

struct OfferRow {
  int64_t rows;
  uint32_t n, k, dtype, flags, route;
  uint8_t out, scales;
  uint16_t zero;
  uint64_t workspace;
};
static_assert(sizeof(OfferRow) == 40);
struct CubinRow {
  uint8_t sha256[32];
  uint64_t offset, bytes;
};
static_assert(sizeof(CubinRow) == 48);
struct EntryRow {
  uint32_t offer, zero;
  uint64_t offset, bytes;
};
static_assert(sizeof(EntryRow) == 24);

GemmOffer offer_of(const OfferRow& row) {
  VCC_EXPECT(row.dtype < table::kDtypes && row.flags <= table::kAddsC, "a product");
  VCC_EXPECT(row.route <= static_cast<uint32_t>(GemmRoute::kVariant), "a route");
  VCC_EXPECT(row.rows > 0, "rows of a product");
  VCC_EXPECT(row.out < table::kDtypes && row.scales <= static_cast<uint8_t>(table::Scales::kMixed),
             "scales of a product");
  const GemmShape shape = {row.n,
                           row.k,
                           static_cast<uint8_t>(row.dtype),
                           static_cast<uint8_t>(row.flags),
                           row.out,
                           static_cast<table::Scales>(row.scales)};
  return {shape, row.rows, static_cast<GemmRoute>(row.route), row.workspace};
}

std::span<const std::byte> part(std::span<const std::byte> all, uint64_t offset, uint64_t bytes) {
  VCC_EXPECT(offset <= all.size() && bytes <= all.size() - offset, "a part inside the data");
  return all.subspan(offset, bytes);
}

std::vector<GemmCode> codes_of(std::span<const std::byte> data, const void* rows, uint64_t count) {
  std::vector<GemmCode> codes;
  for (const CubinRow& row : array<CubinRow>(rows, count)) {
    const auto code = part(data, row.offset, row.bytes);
    codes.push_back(
        {hex_of(row.sha256), {reinterpret_cast<const uint8_t*>(code.data()), code.size()}});
  }
  return codes;
}

std::vector<Descriptor> descriptors_of(const void* rows, uint64_t count) {
  struct Row {
    int32_t mode, tokens, seqs, uniform, sample, advance, adapted;
  };
  std::vector<Descriptor> made;
  for (const Row& row : array<Row>(rows, count)) {
    made.push_back({mode_of(static_cast<uint32_t>(row.mode)),
                    {row.tokens, row.seqs, row.uniform != 0, row.sample != 0, row.advance != 0,
                     row.adapted != 0}});
  }
  return made;
}

}  // namespace
}  // namespace vcc

using namespace vcc;

int32_t vcc_player_create(uint64_t arena, const void* table, uint64_t size, uint64_t* player) {
  return guarded([&] {
    const auto bytes = array<std::byte>(table, size);
    *player = players().add(std::make_shared<Player>(arena_of(arena), bytes));
  });
}

int32_t vcc_player_create_beside(uint64_t first, const void* table, uint64_t size,
                                 uint64_t* player) {
  return guarded([&] {
    const auto bytes = array<std::byte>(table, size);
    *player = players().add(std::make_shared<Player>(players().get(first), bytes));
  });
}
int32_t vcc_player_create_apart(uint64_t other, const void* table, uint64_t size,
                                uint64_t* player) {
  return guarded([&] {
    const auto bytes = array<std::byte>(table, size);
    const auto known = players().get(other);
    *player = players().add(std::make_shared<Player>(known->arena(), bytes, known->modules()));
  });
}

int32_t vcc_player_close(uint64_t player) {
  return guarded([&] { players().remove(player); });
}

int32_t vcc_player_add_cubin(uint64_t player, const char* digest, const void* cubin,
                             uint64_t size) {
  return guarded([&] { players().get(player)->add_cubin(digest, array<uint8_t>(cubin, size)); });
}

int32_t vcc_player_add_cubins(uint64_t player, const void* data, uint64_t size, const void* cubins,
                              uint64_t count) {
  return guarded([&] {
    const auto object = players().get(player);
    for (const GemmCode& one : codes_of(array<std::byte>(data, size), cubins, count)) {
      object->add_cubin(one.digest, one.cubin);
    }
  });
}

int32_t vcc_player_products(uint64_t player, const char** json) {
  return guarded([&] { *json = keep_text(players().get(player)->products()); });
}

int32_t vcc_player_offer_gemms(uint64_t player, const void* offers, uint64_t count, void* needed) {
  return guarded([&] {
    std::vector<GemmOffer> made;
    for (const OfferRow& row : array<OfferRow>(offers, count)) made.push_back(offer_of(row));
    const std::vector<bool> found = players().get(player)->offer_gemms(made);
    std::copy(found.begin(), found.end(), static_cast<uint8_t*>(needed));
  });
}

int32_t vcc_player_gemm_order(uint64_t player, const void* descriptors, uint64_t count, void* order,
                              uint64_t room, uint64_t* found) {
  return guarded([&] {
    const auto made = players().get(player)->gemm_order(descriptors_of(descriptors, count));
    VCC_EXPECT(made.size() <= room, "room for the order of all offers");
    std::copy(made.begin(), made.end(), static_cast<uint32_t*>(order));
    *found = made.size();
  });
}

int32_t vcc_player_supply_gemms(uint64_t player, const void* data, uint64_t size,
                                const void* cubins, uint64_t cubin_count, const void* entries,
                                uint64_t entry_count, void* taken, const char** trouble) {
  return guarded([&] {
    const auto bytes = array<std::byte>(data, size);
    std::vector<GemmSupply> supply;
    for (const EntryRow& row : array<EntryRow>(entries, entry_count)) {
      supply.push_back({row.offer, part(bytes, row.offset, row.bytes)});
    }
    const auto reasons =
        players().get(player)->supply_gemms(codes_of(bytes, cubins, cubin_count), supply);
    std::string first;
    for (size_t i = 0; i < reasons.size(); ++i) {
      static_cast<uint8_t*>(taken)[i] = reasons[i].empty();
      if (first.empty()) first = reasons[i];
    }
    *trouble = keep_text(std::move(first));
  });
}

int32_t vcc_player_finish_gemms(uint64_t player) {
  return guarded([&] { players().get(player)->finish_gemms(); });
}

int32_t vcc_player_bytes(uint64_t player, int64_t blocks, uint64_t* weights, uint64_t* cache,
                         uint64_t* io, uint64_t* workspace, uint64_t* scratch) {
  return guarded([&] {
    const auto bytes = players().get(player)->bytes(blocks);
    *weights = bytes[0];
    *cache = bytes[1];
    *io = bytes[2];
    *workspace = bytes[3];
    *scratch = bytes[4];
  });
}

int32_t vcc_player_place_weights(uint64_t player, const char** json) {
  return guarded([&] {
    const auto object = players().get(player);
    object->place_weights();
    *json = keep_text(object->describe_weights());
  });
}

int32_t vcc_player_place(uint64_t player, int64_t blocks, int64_t mapped, uint32_t slots,
                         uint32_t ring) {
  return guarded([&] { players().get(player)->place(blocks, mapped, slots, ring); });
}

int32_t vcc_player_map_blocks(uint64_t player, int64_t mapped, uint64_t* bytes) {
  return guarded([&] { *bytes = players().get(player)->map_blocks(mapped); });
}

int32_t vcc_player_describe(uint64_t player, const char** json) {
  return guarded([&] { *json = keep_text(players().get(player)->describe()); });
}

int32_t vcc_player_build(uint64_t player, const void* descriptors, uint64_t count, uint32_t hot,
                         uint32_t threads) {
  return guarded(
      [&] { players().get(player)->build(descriptors_of(descriptors, count), hot, threads); });
}

int32_t vcc_player_graphs(uint64_t player, uint32_t wait, uint32_t* wanted, uint32_t* ready,
                          uint32_t* failed, uint32_t* graphs, const char** failure) {
  return guarded([&] {
    GraphCounts counts = players().get(player)->graphs(wait != 0);
    *wanted = counts.wanted;
    *ready = counts.ready;
    *failed = counts.failed;
    *graphs = counts.graphs;
    *failure = keep_text(std::move(counts.failure));
  });
}

int32_t vcc_player_slot(uint64_t player, uint32_t* slot) {
  return guarded([&] { *slot = players().get(player)->acquire_slot(); });
}

int32_t vcc_player_step(uint64_t player, uint32_t mode, int64_t tokens, int64_t seqs,
                        uint32_t parts, uint32_t rows, uint32_t slot, uint32_t inputs,
                        uint32_t flags, uint64_t* logits) {
  return guarded([&] {
    const Step step = {tokens,          seqs, (parts & 1) != 0, (parts & 2) != 0, (parts & 4) != 0,
                       (parts & 8) != 0};
    const auto object = players().get(player);
    object->step({mode_of(mode), step, rows, slot, inputs, flags});
    *logits = reinterpret_cast<uintptr_t>(object->logits());
  });
}

int32_t vcc_player_decode(uint64_t player, uint32_t mode, int64_t size, uint32_t parts,
                          uint32_t rows, uint32_t steps, uint32_t fresh, uint32_t slot,
                          const void* changed, uint32_t changes, const void* stops,
                          const void* stop_start, uint32_t finish, uint32_t ahead, void* control,
                          void* gaps, uint32_t* done) {
  return guarded([&] {
    const auto starts = array<int32_t>(stop_start, uint64_t{rows} + 1);
    auto* words = static_cast<int64_t*>(control);
    std::atomic_ref<int64_t> stop(words[0]), visible(words[1]);
    DecodeCall call;
    call.mode = mode_of(mode);
    call.size = size;
    call.uniform = (parts & 1) != 0;
    call.adapted = (parts & 8) != 0;
    call.rows = rows;
    call.steps = steps;
    call.fresh = fresh != 0;
    call.slot = slot;
    call.changed = array<int32_t>(changed, changes);
    call.stops = array<int32_t>(stops, static_cast<uint64_t>(starts.back()));
    call.stop_start = starts;
    call.finish = finish;
    call.ahead = ahead;
    call.stop = &stop;
    call.visible = &visible;
    call.gaps = {static_cast<int64_t*>(gaps), steps};
    *done = players().get(player)->decode(call);
  });
}

int32_t vcc_player_wait(uint64_t player) {
  return guarded([&] { players().get(player)->wait(); });
}

int32_t vcc_player_read(uint64_t player, uint64_t address, void* to, uint64_t size) {
  return guarded([&] { players().get(player)->read(address, {static_cast<uint8_t*>(to), size}); });
}

int32_t vcc_player_read_values(uint64_t player, uint64_t address, uint32_t dtype, void* to,
                               uint32_t wanted, uint64_t count) {
  return guarded([&] {
    players().get(player)->read_values(address, dtype_of(dtype),
                                       {static_cast<char*>(to), dtype_of(wanted)}, count);
  });
}

int32_t vcc_move_values(const void* from, uint32_t dtype, uint64_t to, uint32_t wanted,
                        uint64_t count) {
  return guarded([&] {
    char* data = static_cast<char*>(const_cast<void*>(from));  // read only
    move_values({data, dtype_of(dtype)}, {reinterpret_cast<char*>(to), dtype_of(wanted)}, count);
  });
}

int32_t vcc_player_write(uint64_t player, uint64_t address, const void* from, uint64_t size) {
  return guarded([&] { players().get(player)->write(address, array<uint8_t>(from, size)); });
}

int32_t vcc_player_gemms(uint64_t player, int64_t tokens, int64_t seqs, const char** json) {
  return guarded([&] { *json = keep_text(players().get(player)->gemms(tokens, seqs)); });
}

int32_t vcc_player_stats(uint64_t player, const char** json) {
  return guarded([&] { *json = keep_text(players().get(player)->stats()); });
}
