// The player: a checked table on a device, without torch and without Python. Modules, memory,
// graphs and plain launches of any size in the table's ranges.
//
// One call at a time: a call inside or beside another is refused, also on another player over the
// same memory. The order is create, place_weights, add_cubin, offer_gemms, place, build, then
// steps. What brings code comes from any thread beside all that: add_cubin and offer_gemms before
// place, gemm_order, supply_gemms and finish_gemms at any time after offer_gemms.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driver/device.h"
#include "memory/arena.h"
#include "player/expand.h"
#include "player/fill.h"
#include "player/graphs.h"
#include "player/io.h"
#include "player/modules.h"
#include "player/values.h"

namespace vcc {

enum StepFlags : uint32_t { kReadLogits = 1, kReadTokens = 2, kDoNotWait = 4 };

struct StepCall {
  Mode mode = Mode::kPlain;
  Step step;
  uint32_t rows = 0;    // sequences without padding: rows of what is read back
  uint32_t slot = 0;    // of the input ring, written
  uint32_t inputs = 0;  // groups to send
  uint32_t flags = 0;
};

// A run of decode steps that the device does by itself; see decode.cpp.
struct DecodeCall {
  Mode mode = Mode::kPlain;
  int64_t size = 0;     // T and B of the graph
  bool uniform = true;  // of its descriptor
  bool adapted = false;
  uint32_t rows = 0;  // sequences without padding
  uint32_t steps = 0;
  bool fresh = true;  // send all inputs; otherwise only the changed rows of the block table
  uint32_t slot = 0;
  std::span<const int32_t> changed;     // rows of the block table
  std::span<const int32_t> stops;       // token ids that end sequences, of all sequences in order
  std::span<const int32_t> stop_start;  // [rows + 1]: where a sequence's begin in `stops`
  uint32_t finish = 0;                  // end the run when so many sequences have ended
  uint32_t ahead = 1;                   // steps launched before the last one's tokens are seen
  std::atomic_ref<int64_t>* stop = nullptr;     // set from outside: end the run soon
  std::atomic_ref<int64_t>* visible = nullptr;  // steps whose tokens are in the ring
  std::span<int64_t> gaps;  // [steps]: ns from a step's tokens seen to the next launch returned
};

// How a step of one size runs: what is sent and what is launched.
struct Prepared {
  struct Action {
    std::shared_ptr<const Graph> graph;  // or launches of the expansion
    uint32_t first = 0, count = 0;
  };

  Expansion expansion;
  std::vector<Action> actions;
  std::vector<int64_t> values;  // of the expressions
  bool complete = true;         // every graph of the mode is there
  uint64_t version = 0;         // of the graphs, when it was made
};

// An entry of the GEMM store, and a cubin under its SHA-256 in hex.
struct GemmSupply {
  uint32_t offer;
  std::span<const std::byte> table;
};
struct GemmCode {
  std::string digest;
  std::span<const uint8_t> cubin;
};

struct PlayerTimes {
  uint64_t place = 0, hot = 0, prepare = 0;  // ns
  uint64_t steps = 0, graph_launches = 0, plain_launches = 0, prepared = 0;
};

class Player {
 public:
  // Memory of its own; `modules` of another player save loading code again.
  Player(std::shared_ptr<Arena> arena, std::span<const std::byte> table,
         std::shared_ptr<Modules> modules = std::make_shared<Modules>());
  // Another table over the memory and modules of a player: of another range of sizes, or another
  // step of a recording, of which one runs at a time. Its regions are no larger; streams and input
  // slots are its own. It is placed after the first; what it is offered before the first is placed
  // counts in that one's memory.
  Player(std::shared_ptr<Player> first, std::span<const std::byte> table);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  const std::shared_ptr<Arena>& arena() const { return arena_; }
  const std::shared_ptr<Modules>& modules() const { return modules_; }

  void add_cubin(std::string_view digest, std::span<const uint8_t> cubin);

  // What the GEMM store has; for each whether any step may take it, so that it has to come.
  std::vector<bool> offer_gemms(std::span<const GemmOffer> offers);
  // The offers that these graphs take, each once, in the order in which they are needed.
  std::vector<uint32_t> gemm_order(std::span<const Descriptor> descriptors) const;
  // Entries that have come, and their code. One that is refused is withdrawn: why, else empty.
  std::vector<std::string> supply_gemms(std::span<const GemmCode> codes,
                                        std::span<const GemmSupply> entries);
  // Nothing more comes.
  void finish_gemms() { gemms_.finish(); }

  // Bytes of the regions by kind (weights, KV cache, io, workspace, scratch) with this many blocks.
  std::array<uint64_t, 5> bytes(int64_t blocks) const;

  // Give the weights their memory before everything else has its own, so that they can be read
  // meanwhile.
  Place place_weights();
  // Give every region its memory. `blocks` is K, of which `mapped` have memory; `slots` input slots
  // and `ring` rows of decode tokens.
  void place(int64_t blocks, int64_t mapped, uint32_t slots, uint32_t ring);
  // Give KV blocks up to `mapped` memory and take it from those behind, whose contents are lost;
  // returns the bytes of the caches' memory. What cannot be mapped changes nothing.
  uint64_t map_blocks(int64_t mapped);
  void build(std::vector<Descriptor> descriptors, uint32_t hot, uint32_t threads);
  GraphCounts graphs(bool wait);

  uint32_t acquire_slot();
  void step(const StepCall& call);
  // Returns the steps done.
  uint32_t decode(const DecodeCall& call);
  // Where the last step's logits lie, if it read them.
  const uint8_t* logits() const { return logits_.data(); }
  // Until everything queued is done.
  void wait();

  // Copy between host and device memory of this player, after everything queued.
  void read(uint64_t address, std::span<uint8_t> bytes);
  // Elements of this dtype into an array, through pinned memory.
  void read_values(uint64_t address, uint16_t dtype, const Values& to, uint64_t count);
  void write(uint64_t address, std::span<const uint8_t> bytes);

  std::string describe();                           // JSON; keys in abi.h
  std::string describe_weights();                   // JSON: their region and tensors
  std::string products() const;                     // JSON: what a step multiplies, and by what
  std::string gemms(int64_t tokens, int64_t seqs);  // JSON: who computes each product
  std::string stats();                              // JSON

 private:
  // One call at a time, on any of the players over one memory.
  class Hold {
   public:
    explicit Hold(Player& player);
    ~Hold() { busy_.store(false); }

   private:
    std::atomic<bool>& busy_;
  };

  std::atomic<bool>& busy() { return first_ == nullptr ? busy_ : first_->busy(); }
  void enter();
  void must_be_placed(const char* task) const;
  uint64_t region_bytes(const table::Region& region, const std::vector<int64_t>& values) const;
  uint64_t workspace() const;
  void open();
  using Refusals = std::map<std::string, std::string, std::less<>>;  // of cubins, and why
  std::shared_ptr<StoredGemm> stored_gemm(const GemmOffer& offer, std::span<const std::byte> bytes,
                                          const Refusals& refused);
  void end_offers(bool end);
  void expect_offers() const;
  int64_t least_blocks() const;
  void place_regions(const Expander& expander, int64_t mapped);
  Place allocate(const table::Region& region, uint64_t bytes, CUdeviceptr& start);
  void share_regions(const Expander& expander);
  using Part = std::pair<uint64_t, uint64_t>;  // bytes of a range, from and to
  std::vector<Part> cache_parts(int64_t mapped) const;
  void map_caches(int64_t mapped);
  void unmap_beyond(int64_t mapped);
  void release_memory() noexcept;
  void release_weights() noexcept;
  void abandon() noexcept;
  const Prepared& prepared(Mode mode, const Step& step);
  void add_piecewise(Prepared& made, const Step& step) const;
  bool add_full(Prepared& made, const Step& step) const;
  void run(const Prepared& prepared);
  void check_rows(uint32_t rows, int64_t seqs) const;
  void read_back(const StepCall& call, const Prepared& prepared);
  bool wait_row(int32_t* row, uint32_t count);
  int32_t* ring_row(uint32_t step) const;
  uint64_t address_of(const table::Tensor& tensor, const std::vector<int64_t>& values) const;

  pid_t process_ = getpid();
  std::shared_ptr<Player> first_;  // whose memory and modules these are, or null
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<Device> device_;
  Table table_;
  std::shared_ptr<Modules> modules_;
  std::vector<Shape> shapes_;
  Gemms gemms_;
  uint64_t beside_workspace_ = 0;  // of the offers to tables beside this one
  std::vector<Place> places_;
  std::vector<CUdeviceptr> allocated_;
  CUdeviceptr early_ = 0;         // memory of place_weights
  std::optional<Place> weights_;  // of place_weights
  CUdeviceptr cache_ = 0;
  uint64_t cache_bytes_ = 0;
  int64_t blocks_ = 0, mapped_ = 0;
  std::unique_ptr<Expander> expander_;
  std::unique_ptr<InputRing> inputs_;
  std::unique_ptr<Graphs> graphs_;
  Pinned ring_, logits_, active_, values_;
  uint32_t ring_steps_ = 0, ring_width_ = 0;
  CUstream stream_ = nullptr;
  CUevent done_ = nullptr;
  uint64_t arena_version_ = 0;
  std::atomic<bool> busy_{false};
  std::mutex offering_;  // offers come before `place` begins, beside place_weights
  bool offers_end_ = false;
  std::mutex supply_;  // one supplier at a time
  std::atomic<uint64_t> modules_ns_{0};
  std::atomic<uint64_t> supply_ns_{0};  // of its thread

  using Key = std::pair<Mode, Step>;
  std::list<std::pair<Key, Prepared>> recent_;  // the latest first
  std::map<Key, std::list<std::pair<Key, Prepared>>::iterator> by_key_;
  uint64_t kept_bytes_ = 0;
  PlayerTimes times_;
};

}  // namespace vcc
