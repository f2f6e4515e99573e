// Shared by all entry points: the script, the counters, the handles, and the checks before every call.
#pragma once
#include "cubin.hpp"
#include "memory.hpp"
#include "script.hpp"
#include "streams.hpp"
#include "../../crates/swath-cuda/kernels/host/table.hpp"
#include <mutex>
#include <thread>

struct Counters {
    uint64_t calls = 0, fallible = 0, errors = 0;
    uint64_t alloc = 0, free = 0, peak_bytes = 0, host_alloc = 0, host_free = 0;
    uint64_t h2d = 0, d2h = 0, d2d = 0, h2d_bytes = 0, d2h_bytes = 0, d2d_bytes = 0, memset = 0, pageable = 0;
    uint64_t launch = 0, sync = 0, query = 0, submitted_before_first_wait = 0;
    uint64_t streams_made = 0, events_made = 0, modules_made = 0, cubins_made = 0;
    bool waited = false;
};

struct Function {
    Context* context;
    std::string name;
    HostKernel kernel;
    int dynamic_shared = 48 << 10;
};

struct Module {
    Context* context;
    std::string text;  // PTX; empty where it is machine code
    Cubin cubin;
    std::map<std::string, CUfunction> functions;
};

// Handles are numbers that are never reused, so that a stale one is always recognised.
template <class T> class Handles {
  public:
    void* add(std::shared_ptr<T> object) {
        void* handle = reinterpret_cast<void*>(next += 16);
        objects.emplace(handle, std::move(object));
        return handle;
    }
    std::shared_ptr<T> find(void* handle) const {
        const auto found = objects.find(handle);
        return found == objects.end() ? nullptr : found->second;
    }
    void remove(void* handle) { objects.erase(handle); }
    size_t size() const { return objects.size(); }
    template <class Test> void remove_if(Test test) {
        for (auto at = objects.begin(); at != objects.end();)
            at = test(*at->second) ? objects.erase(at) : std::next(at);
    }

  private:
    uint64_t next = 0x10000;
    std::map<void*, std::shared_ptr<T>> objects;
};

struct State {
    std::mutex mutex;
    Script script;
    bool scripted = false;
    bool ready = false;
    bool lost = false;
    int process = 0;
    Counters count;
    Context contexts[Script::MAX_DEVICES];
    // Kernel arguments are searched for device addresses, so these must not look like two small numbers side by side.
    Arena device{0x5a5d00000000ull, true};
    Arena host{0x5aa100000000ull, false};
    Scheduler scheduler;
    Handles<Stream> streams;
    Handles<Event> events;
    Handles<Module> modules;
    Handles<Function> functions;
    std::map<Context*, std::shared_ptr<Stream>> legacy;
    std::map<std::pair<Context*, std::thread::id>, std::shared_ptr<Stream>> per_thread;

    uint64_t live_on(const Context& context) {
        uint64_t sum = 0;
        for (const auto& [start, block] : device.all()) sum += block.context == &context ? block.len : 0;
        return sum;
    }
};

State& state();

// Opens device memory for the fake's own use. At all other times the host cannot touch it, as it could not on a real
// device.
class Reach {
  public:
    explicit Reach(std::initializer_list<CUdeviceptr> addresses) {
        for (const CUdeviceptr address : addresses) add(state().device.find(address));
    }
    // All memory of the context, which its kernels may touch.
    explicit Reach(const Context& context) {
        for (const auto& [start, block] : state().device.all())
            if (block.context == &context) add(&block);
    }
    ~Reach() {
        for (const Block* block : blocks)
            if (state().script.hide) Arena::open(*block, false);
    }
    Reach(const Reach&) = delete;

  private:
    void add(const Block* block) {
        if (!block) return;
        Arena::open(*block, true);
        blocks.push_back(block);
    }
    std::vector<const Block*> blocks;
};

// Prints a caller's error on stderr, and counts it.
void report(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Checks the guards of a block of device or host memory; reports once that they were written.
void check_guards(Block& block);

enum class Need { Driver, Init, Context };

// A call that gives something back cannot be failed alone: a caller can do nothing about it.
enum class Kind { Uses, GivesBack };

// Held by an entry point while it works.
class Call {
  public:
    explicit Call(Need need, Kind kind = Kind::Uses);
    CUresult result = OK;
    Context* context = nullptr;

  private:
    std::unique_lock<std::mutex> lock;
};

// The contexts that a thread has made current, the last one on top.
std::vector<Context*>& current();

// The work queue behind a stream handle of the context, the three special ones included; null for another's or a stale
// one.
std::shared_ptr<Stream> stream_of(Context& context, CUstream handle);

// Gives work to a stream. The answer is the context's state, which shows a fault at once where nothing is deferred.
CUresult submit(const std::shared_ptr<Stream>& stream, Work work);
