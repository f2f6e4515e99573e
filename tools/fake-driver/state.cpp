// The state of the fake, its script and its counters, and the errors that are found when the process ends.
#include "state.hpp"
#include <atomic>
#include <cstdarg>
#include <unistd.h>

static std::atomic<bool> used{false};

State& state() {
    // Never destroyed: other threads may still call while the process ends.
    static State& only = *new State;
    used = true;
    return only;
}

std::vector<Context*>& current() {
    static thread_local std::vector<Context*> stack;
    return stack;
}

void report(const char* format, ...) {
    state().count.errors++;
    std::fputs("fake driver: ", stderr);
    va_list values;
    va_start(values, format);
    std::vfprintf(stderr, format, values);
    va_end(values);
    std::fputc('\n', stderr);
}

void check_guards(Block& block) {
    const Reach reach({block.start});
    const char* kind = state().device.reserved(block.start) ? "device" : "host";
    const uint64_t at = block.reported ? 0 : Arena::damaged(block);
    if (!at) return;
    block.reported = true;
    const long long offset = static_cast<long long>(at - block.start);
    report("%s memory of %llu bytes was written at %lld", kind, static_cast<unsigned long long>(block.len), offset);
}

static void check_all_guards() {
    for (auto& [start, block] : state().device.all()) check_guards(block);
    for (auto& [start, block] : state().host.all()) check_guards(block);
}

Call::Call(Need need, Kind kind) : lock(state().mutex) {
    State& s = state();
    if (!current().empty()) context = current().back();
    if (++s.count.calls > s.script.lose_after && !s.lost) {
        s.lost = true;
        for (Context& each : s.contexts) s.scheduler.abandon(&each);
    }
    const bool failed = kind == Kind::Uses && ++s.count.fallible == s.script.fail_call;
    if (s.lost || failed) result = UNKNOWN;
    else if (need == Need::Driver) result = OK;
    // A process that was forked from one that uses the driver cannot use it.
    else if (!s.ready || s.process != getpid()) result = NOT_INITIALIZED;
    else if (need == Need::Init) result = OK;
    else if (!context) result = INVALID_CONTEXT;
    else if (!context->retained) result = CONTEXT_IS_DESTROYED;
    else result = context->broken;
}

std::shared_ptr<Stream> stream_of(Context& context, CUstream handle) {
    State& s = state();
    const uint64_t special = reinterpret_cast<uint64_t>(handle);
    if (special <= 2) {
        const bool legacy = special < 2;
        auto& slot = legacy ? s.legacy[&context] : s.per_thread[{&context, std::this_thread::get_id()}];
        if (!slot) slot = s.scheduler.make(&context, true, legacy);
        return slot;
    }
    auto stream = s.streams.find(handle);
    if (!stream) report("stream %p does not exist (any more)", handle);
    return stream && stream->context == &context ? stream : nullptr;
}

CUresult submit(const std::shared_ptr<Stream>& stream, Work work) {
    State& s = state();
    if (!s.count.waited) s.count.submitted_before_first_wait++;
    s.scheduler.queue(stream, std::move(work));
    return stream->context->broken;
}

API int swath_fake_script(const char* text) {
    State& s = state();
    std::unique_lock<std::mutex> lock(s.mutex);
    Script script;
    if (!script.parse(text ? text : std::getenv("SWATH_FAKE_DRIVER"))) return 1;
    for (Context& context : s.contexts) {
        s.scheduler.finish(&context);
        context.broken = OK;
    }
    s.script = script;
    s.scripted = true;
    s.lost = false;
    s.count = Counters();
    s.count.peak_bytes = s.device.live();
    s.scheduler.async = script.async != 0;
    s.scheduler.seed(script.seed);
    for (auto& [start, block] : s.device.all()) Arena::open(block, !script.hide);
    return 0;
}

API unsigned long long swath_fake_count(const char* what) {
    State& s = state();
    std::unique_lock<std::mutex> lock(s.mutex);
    const std::string name = what ? what : "";
    if (name == "errors") check_all_guards();
    const Counters& c = s.count;
    const std::map<std::string, uint64_t> values = {
        {"calls", c.calls},
        {"fallible", c.fallible},
        {"errors", c.errors},
        {"alloc", c.alloc},
        {"free", c.free},
        {"live_bytes", s.device.live()},
        {"peak_bytes", c.peak_bytes},
        {"host_alloc", c.host_alloc},
        {"host_free", c.host_free},
        {"live_host_bytes", s.host.live()},
        {"h2d", c.h2d},
        {"d2h", c.d2h},
        {"d2d", c.d2d},
        {"h2d_bytes", c.h2d_bytes},
        {"d2h_bytes", c.d2h_bytes},
        {"d2d_bytes", c.d2d_bytes},
        {"memset", c.memset},
        {"pageable", c.pageable},
        {"launch", c.launch},
        {"sync", c.sync},
        {"query", c.query},
        {"submitted_before_first_wait", c.submitted_before_first_wait},
        {"streams", s.streams.size()},
        {"events", s.events.size()},
        {"modules", s.modules.size()},
        {"streams_made", c.streams_made},
        {"events_made", c.events_made},
        {"modules_made", c.modules_made},
        {"cubins_made", c.cubins_made},
    };
    const auto found = values.find(name);
    return found == values.end() ? UINT64_MAX : found->second;
}

// A test that never asks for `errors` fails all the same.
__attribute__((destructor)) static void at_exit() {
    if (!used) return;
    State& s = state();
    if (!s.ready || s.process != getpid()) return;
    check_all_guards();
    if (s.script.leaks && s.device.live() + s.host.live())
        report("%llu bytes of device and %llu of host memory were not freed",
               static_cast<unsigned long long>(s.device.live()), static_cast<unsigned long long>(s.host.live()));
    if (!s.count.errors) return;
    std::fprintf(stderr, "fake driver: %llu errors\n", static_cast<unsigned long long>(s.count.errors));
    std::fflush(nullptr);
    _exit(97);
}
